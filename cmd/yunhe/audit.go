package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
)

func auditCommand(c *cli) *cobra.Command {
	return group("audit", groupAdmin, "Who did what", auditListCommand(c))
}

func auditListCommand(c *cli) *cobra.Command {
	var p paging
	var user, method string
	cmd := &cobra.Command{
		Use: "list", Short: "List audit events, newest first",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			events, next, err := pages(p, func(size int32, token string) ([]*identityv1.AuditEvent, string, error) {
				res, err := a.identity.ListAuditEvents(cmd.Context(), &identityv1.ListAuditEventsRequest{
					PageSize: size, PageToken: token, UserId: user, Method: method,
				})
				return res.GetEvents(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			names := make([]string, len(events))
			for i, e := range events {
				names[i] = e.GetEventId()
			}
			err = c.print(result{
				msg: &identityv1.ListAuditEventsResponse{Events: events, NextPageToken: next}, names: names,
				print: func(w io.Writer, color bool) error { return c.auditTable(events).Write(w, color) },
			})
			c.noteMore(len(events), next)
			return err
		},
	}
	cmd.Flags().StringVar(&user, "user", "", "only what this user did")
	cmd.Flags().StringVar(&method, "method", "", "only calls of this method, such as yunhe.jobs.v1.JobService/StopJob")
	pageFlags(cmd, &p, 50)
	return cmd
}

func (c *cli) auditTable(events []*identityv1.AuditEvent) *text.Table {
	columns := []string{"TIME", "USER", "METHOD", "SUBJECT", "OUTCOME"}
	if c.wide() {
		columns = append(columns, "TENANT", "KEY", "REMOTE", "EVENT")
	}
	t := text.NewTable(columns...)
	for _, e := range events {
		method := e.GetMethod()
		if !c.wide() {
			method = method[strings.LastIndexByte(method, '/')+1:]
		}
		outcome := text.Cell{Text: e.GetOutcome()}
		if e.GetOutcome() != "OK" {
			outcome.Color = text.Red
		}
		row := []any{c.stamp(e.GetAt()), e.GetUserId(), method, e.GetSubject(), outcome}
		if c.wide() {
			row = append(row, e.GetTenantId(), e.GetKeyId(), e.GetRemote(), e.GetEventId())
		}
		t.Row(row...)
	}
	return t
}
