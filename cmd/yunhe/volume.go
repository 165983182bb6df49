package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	volumesv1 "yunhe.dev/yunhe/gen/yunhe/volumes/v1"
	"yunhe.dev/yunhe/internal/core"
)

func volumeCommand(c *cli) *cobra.Command {
	return group("volume", groupJobs, "Volumes: files at a center that outlive the runs that use them",
		volumeCreateCommand(c), volumeListCommand(c), volumeShowCommand(c), volumeGrowCommand(c), volumeDeleteCommand(c))
}

// bytesArg reads an amount of bytes such as 20Gi.
func bytesArg(what, s string) (int64, error) {
	n, err := core.ParseQuantity(core.Storage, s)
	if err != nil || n <= 0 {
		return 0, usagef("%s: want an amount such as 20Gi, got %q", what, s)
	}
	return n, nil
}

// lookAgain is how often what is waited for is looked at.
const lookAgain = 500 * time.Millisecond

// settled waits until a volume's center has done what was asked.
func (c *cli) settled(ctx context.Context, a *api, v *volumesv1.Volume) (*volumesv1.Volume, error) {
	said := ""
	for v.GetState() == volumesv1.VolumeState_VOLUME_STATE_CREATING || v.GetState() == volumesv1.VolumeState_VOLUME_STATE_GROWING {
		if m := v.GetMessage(); m != said && m != "" {
			said = m
			c.note("%s", text.Clean(m))
		}
		select {
		case <-ctx.Done():
			return v, ctx.Err()
		case <-time.After(lookAgain):
		}
		var err error
		if v, err = a.volumes.GetVolume(ctx, &volumesv1.GetVolumeRequest{Volume: v.GetVolumeId()}); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func volumeCreateCommand(c *cli) *cobra.Command {
	var center, size string
	var noWait bool
	cmd := &cobra.Command{
		Use: "create NAME --center CENTER --size SIZE", Short: "Make a volume at a center",
		Long: `Makes a volume at a center and waits until it is there. Jobs that name it run at
that center; what their commands write to it stays when they end.`,
		Example: "  yunhe volume create data --center gz-1 --size 20Gi\n  yunhe job submit --image host --spec small --volume data:/data --command 'date >>/data/log'",
		Args:    takes(1, 1, "a name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if center == "" {
				return &usageError{msg: "--center is missing", hint: "`yunhe center list` shows the centers"}
			}
			n, err := bytesArg("--size", size)
			if err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			v, err := a.volumes.CreateVolume(cmd.Context(), &volumesv1.CreateVolumeRequest{Name: args[0], AiCenterId: center, Bytes: n})
			if err == nil && !noWait {
				v, err = c.settled(cmd.Context(), a, v)
			}
			if err != nil {
				return err
			}
			return c.printVolumes([]*volumesv1.Volume{v}, v)
		},
	}
	cmd.Flags().StringVar(&center, "center", "", "where it is to be")
	cmd.Flags().StringVar(&size, "size", "", "what it is to hold, such as 20Gi")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait for the center to make it")
	return cmd
}

func (c *cli) printVolumes(list []*volumesv1.Volume, msg any) error {
	names := make([]string, len(list))
	for i, v := range list {
		names[i] = v.GetVolumeId()
	}
	return c.print(result{msg: msg, names: names, print: func(w io.Writer, color bool) error {
		columns := []string{"VOLUME", "CENTER", "STATE", ">SIZE", ">USED", "ID"}
		if c.wide() {
			columns = append(columns, "TENANT", "BOUNDED", "CREATED", "MESSAGE")
		}
		t := text.NewTable(columns...)
		for _, v := range list {
			row := []any{v.GetName(), v.GetAiCenterId(), volumeState(v), text.Bytes(max(v.GetBytes(), v.GetWantedBytes())), volumeUsed(v), v.GetVolumeId()}
			if c.wide() {
				row = append(row, v.GetTenantId(), map[bool]string{true: "yes", false: "no"}[v.GetEnforced()], c.ago(v.GetCreatedAt()), v.GetMessage())
			}
			t.Row(row...)
		}
		return t.Write(w, color)
	}})
}

func volumeUsed(v *volumesv1.Volume) string {
	if v.UsedBytes == nil {
		return "-"
	}
	return text.Bytes(v.GetUsedBytes())
}

func volumeState(v *volumesv1.Volume) text.Cell {
	cell := text.Cell{Text: enumName(v.GetState().String(), "VOLUME_STATE_"), Color: text.Yellow}
	switch v.GetState() {
	case volumesv1.VolumeState_VOLUME_STATE_READY:
		cell.Color = text.Green
	case volumesv1.VolumeState_VOLUME_STATE_LOST:
		cell.Color = text.Red
	}
	return cell
}

func volumeListCommand(c *cli) *cobra.Command {
	var p paging
	var center string
	cmd := &cobra.Command{
		Use: "list", Short: "List volumes and how full they are",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			list, next, err := pages(p, func(size int32, token string) ([]*volumesv1.Volume, string, error) {
				res, err := a.volumes.ListVolumes(cmd.Context(), &volumesv1.ListVolumesRequest{PageSize: size, PageToken: token, AiCenterId: center})
				return res.GetVolumes(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			if len(list) == 0 && c.forPeople() {
				c.note("no volumes; `yunhe volume create` makes one")
				return nil
			}
			err = c.printVolumes(list, &volumesv1.ListVolumesResponse{Volumes: list, NextPageToken: next})
			c.noteMore(len(list), next)
			return err
		},
	}
	cmd.Flags().StringVar(&center, "center", "", "only at this center")
	pageFlags(cmd, &p, 200)
	return cmd
}

func volumeShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show VOLUME", Short: "Show a volume",
		Args: takes(1, 1, "the name or ID of a volume"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			v, err := a.volumes.GetVolume(cmd.Context(), &volumesv1.GetVolumeRequest{Volume: args[0]})
			if err != nil {
				return err
			}
			return c.print(result{msg: v, names: []string{v.GetVolumeId()}, print: func(w io.Writer, color bool) error {
				var f text.Facts
				state := volumeState(v)
				f.Add("Volume", v.GetVolumeId())
				f.Add("Name", v.GetName())
				f.Add("Tenant", v.GetTenantId())
				f.Add("Center", v.GetAiCenterId())
				f.AddColor("State", state.Text, state.Color)
				f.Add("Message", v.GetMessage())
				f.Add("Size", text.Bytes(v.GetBytes()))
				if v.GetWantedBytes() != v.GetBytes() {
					f.Add("Asked for", text.Bytes(v.GetWantedBytes()))
				}
				if v.UsedBytes != nil {
					f.Add("Used", text.Bytes(v.GetUsedBytes())+", "+c.ago(v.GetUsedAt()))
				}
				f.Add("Bounded", map[bool]string{true: "yes: writing more fails", false: "no: the size is a promise"}[v.GetEnforced()])
				f.Add("Made by", v.GetUserId())
				f.Add("Created", c.stamp(v.GetCreatedAt()))
				return f.Write(w, color)
			}})
		},
	}
}

func volumeGrowCommand(c *cli) *cobra.Command {
	var noWait bool
	cmd := &cobra.Command{
		Use: "grow VOLUME SIZE", Short: "Make a volume larger", Example: "  yunhe volume grow data 40Gi",
		Args: takes(2, 2, "the name or ID of a volume and the size it is to have"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := bytesArg("SIZE", args[1])
			if err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			v, err := a.volumes.GrowVolume(cmd.Context(), &volumesv1.GrowVolumeRequest{Volume: args[0], Bytes: n})
			if err == nil && !noWait {
				v, err = c.settled(cmd.Context(), a, v)
			}
			if err != nil {
				return err
			}
			if v.GetBytes() < n && !noWait {
				return fmt.Errorf("volume %s stays as it is: %s", v.GetName(), v.GetMessage())
			}
			return c.printVolumes([]*volumesv1.Volume{v}, v)
		},
	}
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait for the center to do it")
	return cmd
}

func volumeDeleteCommand(c *cli) *cobra.Command {
	return removal{
		use: "delete VOLUME...", short: "Delete volumes with all that is in them",
		long: `Deletes volumes with all that is in them. One that a job which has not ended
names cannot be deleted. A center that is away deletes it when it is back.`,
		one: "volume with all that is in it", some: "volumes with all that is in them", member: "volumes", done: "deleted",
		remove: func(cmd *cobra.Command, a *api, id string) error {
			_, err := a.volumes.DeleteVolume(cmd.Context(), &volumesv1.DeleteVolumeRequest{Volume: id})
			return err
		},
	}.command(c)
}

// mountFlag reads VOLUME:PATH[:ro].
func mountFlag(s string) (*jobsv1.VolumeMount, error) {
	parts := strings.Split(s, ":")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" || parts[1] == "" || len(parts) == 3 && parts[2] != "ro" {
		return nil, usagef("--volume: want VOLUME:PATH or VOLUME:PATH:ro, got %q", s)
	}
	return &jobsv1.VolumeMount{Volume: parts[0], Path: parts[1], ReadOnly: len(parts) == 3}, nil
}
