package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	calendarv1 "yunhe.dev/yunhe/gen/yunhe/calendar/v1"
)

func reservationCommand(c *cli) *cobra.Command {
	return group("reservation", groupNetwork, "Room at centers promised for later, and kept",
		reservationCreateCommand(c), reservationListCommand(c), reservationShowCommand(c), reservationCancelCommand(c))
}

func reservationCreateCommand(c *cli) *cobra.Command {
	req := &calendarv1.CreateReservationRequest{}
	var start, end string
	var unused time.Duration
	cmd := &cobra.Command{
		Use: "create", Short: "Reserve room, once or again and again",
		Long: `Reserves packages of a specification, or amounts at one center, from one time to
another. It is accepted only if it can be honored. Work that would reach into it
is not started; when it begins it is held, which is billed, and jobs submitted
with --reservation run in it. What nothing uses for half an hour (--unused) is
given back.

A rule of iCalendar has it come again: --repeat "FREQ=WEEKLY;BYDAY=MO,WE;COUNT=8".`,
		Example: `  yunhe reservation create --spec medium --count 8 --from 2026-12-01T08:00:00Z --until 2026-12-01T20:00:00Z
  yunhe reservation create --amount gpu=16 --center gz-1 --from 12h --until 36h --preempt
  yunhe reservation create --spec small --region guizhou --from 2026-12-07T00:00:00Z --until 2026-12-07T04:00:00Z \
      --repeat "FREQ=WEEKLY;COUNT=4" --zone Asia/Shanghai`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			if req.StartAt, err = c.moment("--from", start); err != nil {
				return err
			}
			if req.EndAt, err = c.moment("--until", end); err != nil {
				return err
			}
			if req.UnusedSeconds, err = wholeSeconds("--unused", unused); err != nil {
				return err
			}
			if req.ResourceSpecId != "" && !cmd.Flags().Changed("count") {
				req.Count = 1
			}
			got, err := a.calendar.CreateReservation(cmd.Context(), req)
			if err != nil {
				return err
			}
			return c.printReservation(got)
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Name, "name", "", "a name for it")
	f.StringVar(&req.RequestId, "request-id", "", "makes it safe to repeat")
	f.StringVar(&req.ResourceSpecId, "spec", "", "packages of this specification")
	f.Int64Var(&req.Count, "count", 0, "how many packages (default 1)")
	f.StringToStringVar(&req.Amounts, "amount", nil, "amounts at one center instead, such as gpu=16 (repeatable)")
	f.StringArrayVar(&req.AiCenterIds, "center", nil, "only at this center (repeatable)")
	f.StringArrayVar(&req.Regions, "region", nil, "only in this region (repeatable)")
	f.StringVar(&req.Expression, "where", "", "only at centers for which this expression over tags is true")
	f.StringVar(&start, "from", "", "when it begins: a time, or how far ahead (12h, 2d) (default now)")
	f.StringVar(&end, "until", "", "when it ends, likewise")
	f.StringVar(&req.Recurrence, "repeat", "", "comes again by this rule, which must end (COUNT or UNTIL)")
	f.StringVar(&req.TimeZone, "zone", "", "time zone of the rule (default UTC)")
	f.BoolVar(&req.Preempt, "preempt", false, "take runs back that are in its way when it begins")
	f.DurationVar(&unused, "unused", 0, "given back when nothing ran in it for so long (default 30m)")
	return cmd
}

// wholeSeconds of a flag.
func wholeSeconds(flag string, d time.Duration) (int64, error) {
	if d < 0 || d%time.Second != 0 {
		return 0, usagef("%s: want whole seconds, got %s", flag, d)
	}
	return int64(d / time.Second), nil
}

// reserved says what is reserved in a few words.
func reserved(r *calendarv1.Reservation) string {
	if r.GetResourceSpecId() != "" {
		return fmt.Sprintf("%d × %s", r.GetCount(), r.GetResourceSpecId())
	}
	return pairs(r.GetAmounts())
}

func timeState(t *calendarv1.Occurrence) string { return enumName(t.GetState().String(), "STATE_") }

func reservationState(r *calendarv1.Reservation) string {
	return enumName(r.GetState().String(), "STATE_")
}

// next is the first time that is not over, else the last.
func nextOf(r *calendarv1.Reservation) *calendarv1.Occurrence {
	var last *calendarv1.Occurrence
	for _, t := range r.GetOccurrences() {
		if last = t; t.GetEndedAt() == nil {
			break
		}
	}
	return last
}

func centersOf(t *calendarv1.Occurrence) string {
	var out []string
	for _, p := range t.GetParts() {
		out = append(out, p.GetAiCenterId())
	}
	return strings.Join(out, " ")
}

func (c *cli) printReservation(r *calendarv1.Reservation) error {
	return c.print(result{msg: r, names: []string{r.GetReservationId()}, print: func(w io.Writer, color bool) error {
		var f text.Facts
		f.Add("Reservation", r.GetReservationId())
		f.Add("Name", r.GetName())
		f.Add("Tenant", r.GetTenantId())
		f.Add("User", r.GetUserName())
		f.Add("State", reservationState(r))
		f.Add("Reason", r.GetReason())
		f.Add("Reserved", reserved(r))
		f.Add("Repeats", strings.TrimSpace(r.GetRecurrence()+" "+r.GetTimeZone()))
		if r.GetPreempt() {
			f.Add("Preempts", "yes")
		}
		f.Add("Given back unused after", text.Duration(time.Duration(r.GetUnusedSeconds())*time.Second))
		f.Add("Made", c.stamp(r.GetCreatedAt()))
		f.Add("Ended", c.stamp(r.GetEndedAt()))
		if err := f.Write(w, color); err != nil {
			return err
		}
		t := text.NewTable("FROM", "UNTIL", "STATE", "CENTER", "AMOUNTS", "ALLOCATION")
		for _, o := range r.GetOccurrences() {
			for _, p := range o.GetParts() {
				t.Row(c.plain(o.GetStartAt()), c.plain(o.GetEndAt()), timeState(o), p.GetAiCenterId(), pairs(p.GetAmounts()), p.GetAllocationId())
			}
		}
		return t.Write(w, color)
	}})
}

// plain is a time without how long ago it is.
func (c *cli) plain(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().UTC().Format("2006-01-02 15:04:05Z")
}

func reservationListCommand(c *cli) *cobra.Command {
	var p paging
	var all bool
	req := &calendarv1.ListReservationsRequest{}
	cmd := &cobra.Command{
		Use: "list", Short: "List reservations, newest first",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			if !all {
				req.States = []calendarv1.Reservation_State{calendarv1.Reservation_STATE_PLANNED, calendarv1.Reservation_STATE_BEGINNING, calendarv1.Reservation_STATE_ACTIVE}
			}
			rows, next, err := pages(p, func(size int32, token string) ([]*calendarv1.Reservation, string, error) {
				req.PageSize, req.PageToken = size, token
				res, err := a.calendar.ListReservations(cmd.Context(), req)
				return res.GetReservations(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			names := make([]string, len(rows))
			for i, r := range rows {
				names[i] = r.GetReservationId()
			}
			err = c.print(result{msg: &calendarv1.ListReservationsResponse{Reservations: rows, NextPageToken: next}, names: names, print: func(w io.Writer, color bool) error {
				t := text.NewTable("RESERVATION", "NAME", "TENANT", "STATE", "RESERVED", "CENTER", "FROM", "UNTIL", ">TIMES")
				for _, r := range rows {
					o := nextOf(r)
					t.Row(r.GetReservationId(), r.GetName(), r.GetTenantId(), reservationState(r), reserved(r), centersOf(o), c.plain(o.GetStartAt()), c.plain(o.GetEndAt()), len(r.GetOccurrences()))
				}
				return t.Write(w, color)
			}})
			c.noteMore(len(rows), next)
			return err
		},
	}
	cmd.Flags().BoolVar(&all, "over", false, "also those that are over")
	cmd.Flags().StringVar(&req.TenantId, "tenant", "", "only of this tenant")
	pageFlags(cmd, &p, 50)
	return cmd
}

func reservationShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show RESERVATION", Short: "Show a reservation with its times",
		Args: takes(1, 1, "the ID of a reservation"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			r, err := a.calendar.GetReservation(cmd.Context(), &calendarv1.GetReservationRequest{ReservationId: args[0]})
			if err != nil {
				return err
			}
			return c.printReservation(r)
		},
	}
}

func reservationCancelCommand(c *cli) *cobra.Command {
	var stop bool
	cmd := &cobra.Command{
		Use: "cancel RESERVATION...", Short: "Give reservations back, with all times to come",
		Args: takes(1, -1, "the ID of a reservation"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.eachDone(args, "reservationIds", "canceled", func(a *api, id string) error {
				_, err := a.calendar.CancelReservation(cmd.Context(), &calendarv1.CancelReservationRequest{ReservationId: id, Stop: stop})
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&stop, "stop", false, "also while jobs run in it: they are stopped")
	return cmd
}
