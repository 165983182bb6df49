package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
)

func keyCommand(c *cli) *cobra.Command {
	return group("key", groupAdmin, "API keys", keyCreateCommand(c), keyListCommand(c), keyRevokeCommand(c))
}

func keyCreateCommand(c *cli) *cobra.Command {
	var user, note, ttl string
	cmd := &cobra.Command{
		Use: "create", Short: "Create an API key for yourself or another user",
		Long: `Creates an API key and prints it. The key is shown this once: the platform keeps
only a hash of it.`,
		Example: `  yunhe key create --note "laptop" --ttl 90d
  yunhe key create --user li.wei > li-wei.key`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			seconds, err := ttlSeconds(ttl)
			if err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.identity.CreateKey(cmd.Context(), &identityv1.CreateKeyRequest{UserId: user, Note: note, TtlSeconds: seconds})
			if err != nil {
				return err
			}
			return c.print(result{msg: res, names: []string{res.GetKey().GetKeyId()}, print: func(w io.Writer, _ bool) error {
				_, err := fmt.Fprintln(w, res.GetSecret())
				until := "until it is revoked"
				if res.GetKey().GetExpiresAt() != nil {
					until = "until " + c.stamp(res.GetKey().GetExpiresAt())
				}
				c.note("key %s of %s, valid %s; it is not shown again", res.GetKey().GetKeyId(), res.GetKey().GetUserId(), until)
				return err
			}})
		},
	}
	cmd.Flags().StringVar(&user, "user", "", "user the key is for (default: you)")
	cmd.Flags().StringVar(&note, "note", "", "what the key is for")
	cmd.Flags().StringVar(&ttl, "ttl", "", "how long it is valid, such as 12h or 90d (default: until revoked)")
	return cmd
}

func keyListCommand(c *cli) *cobra.Command {
	var p paging
	var user string
	cmd := &cobra.Command{
		Use: "list", Short: "List API keys, without their secrets",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			keys, next, err := pages(p, func(size int32, token string) ([]*identityv1.Key, string, error) {
				res, err := a.identity.ListKeys(cmd.Context(), &identityv1.ListKeysRequest{UserId: user, PageSize: size, PageToken: token})
				return res.GetKeys(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			names := make([]string, len(keys))
			for i, k := range keys {
				names[i] = k.GetKeyId()
			}
			err = c.print(result{
				msg: &identityv1.ListKeysResponse{Keys: keys, NextPageToken: next}, names: names,
				print: func(w io.Writer, color bool) error { return c.keyTable(keys).Write(w, color) },
			})
			c.noteMore(len(keys), next)
			return err
		},
	}
	cmd.Flags().StringVar(&user, "user", "", "only keys of this user")
	pageFlags(cmd, &p, 200)
	return cmd
}

func (c *cli) keyTable(keys []*identityv1.Key) *text.Table {
	t := text.NewTable("KEY", "USER", "TENANT", "NOTE", "CREATED", "EXPIRES", "STATUS")
	for _, k := range keys {
		status := text.Cell{Text: "valid", Color: text.Green}
		switch {
		case k.GetRevokedAt() != nil:
			status = text.Cell{Text: "revoked " + c.ago(k.GetRevokedAt()), Color: text.Red}
		case k.GetExpiresAt() != nil && !c.now().Before(when(k.GetExpiresAt())):
			status = text.Cell{Text: "expired", Color: text.Red}
		}
		expires := "never"
		if k.GetExpiresAt() != nil {
			expires = c.ago(k.GetExpiresAt())
		}
		t.Row(k.GetKeyId(), k.GetUserId(), k.GetTenantId(), k.GetNote(), c.ago(k.GetCreatedAt()), expires, status)
	}
	return t
}

func keyRevokeCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "revoke KEY...", Short: "Revoke API keys at once",
		Long: "Revokes API keys by their ID, the public part that `yunhe key list` shows.\nRevoking a revoked key changes nothing.",
		Args: takes(1, -1, "the ID of a key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.eachDone(args, "keyIds", "revoked", func(a *api, id string) error {
				_, err := a.identity.RevokeKey(cmd.Context(), &identityv1.RevokeKeyRequest{KeyId: id})
				return err
			})
		},
	}
}
