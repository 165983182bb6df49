package main

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	"yunhe.dev/yunhe/internal/backup"
	"yunhe.dev/yunhe/internal/fault"
)

func backupCommand(c *cli) *cobra.Command {
	var f platformFlags
	var full bool
	cmd := &cobra.Command{
		Use: "backup FOLDER", GroupID: groupServe, Short: "Keep a snapshot of a platform, which may run, in a folder",
		Long: `Keep a snapshot of a platform in a folder, which is made if it is not there.
Run it where the platform's data is, with the configuration the platform has.
The platform may run; nothing waits for the backup.

A snapshot holds the database (of PostgreSQL too: pg_dump is needed), the
platform's keys, and the folders of objects and metrics; what lies in S3 or in
another metrics store is kept there. Each snapshot is whole, and costs the
space of what changed since those before. Snapshots hold keys: guard the folder.`,
		Example: `  yunhe backup /mnt/backup --data /var/lib/yunhe
  yunhe backup /mnt/backup --config /etc/yunhe.yaml
  yunhe backup verify /mnt/backup
  yunhe restore /mnt/backup --data /var/lib/yunhe-new`,
		Args: takes(1, 1, "the folder of the backup"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := f.load()
			if err != nil {
				return err
			}
			r, err := backup.Create(args[0])
			if err != nil {
				return err
			}
			line := c.progressLine()
			s, err := r.Take(cmd.Context(), cfg.BackupSource(), backup.Options{Program: buildVersion(), Full: full, Told: func(part string, bytes int64) {
				line.show(fmt.Sprintf("%s: %s read", part, text.Bytes(bytes)))
			}})
			line.clear()
			if err != nil {
				return err
			}
			return c.printSnapshot(s)
		},
	}
	f.addState(cmd)
	cmd.Flags().BoolVar(&full, "full", false, "read and write everything again, also what the folder has")
	cmd.AddCommand(backupListCommand(c), backupVerifyCommand(c), backupPruneCommand(c))
	return cmd
}

// addState adds the flags that say where the state is.
func (f *platformFlags) addState(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.config, "config", "", "configuration file (YAML) of the platform")
	fl.StringVar(&f.data, "data", "", "data folder of the platform (default ./data)")
	fl.StringVar(&f.database, "database", "", "postgres://... if the state is there")
}

func (c *cli) printSnapshot(s backup.Snapshot) error {
	s.Files = nil
	return c.print(result{msg: s, names: []string{s.ID}, print: func(w io.Writer, color bool) error {
		var f text.Facts
		f.Add("Snapshot", s.ID)
		f.Add("Database", s.Database)
		f.Add("Size", text.Bytes(s.Bytes))
		f.Add("New", fmt.Sprintf("%s, %s on the disk", text.Bytes(s.NewBytes), text.Bytes(s.StoredBytes)))
		f.Add("Took", text.Duration(time.Duration(s.Seconds*float64(time.Second))))
		return f.Write(w, color)
	}})
}

func backupListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "list FOLDER", Short: "List the snapshots of a backup",
		Args: takes(1, 1, "the folder of the backup"),
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := backup.Open(args[0])
			if err != nil {
				return err
			}
			all, err := r.Snapshots()
			if err != nil {
				return err
			}
			names := make([]string, len(all))
			t := text.NewTable("SNAPSHOT", "TAKEN", "DATABASE", ">FILES", ">SIZE", ">NEW", "PROGRAM")
			for i, s := range all {
				t.Row(s.ID, text.Ago(c.now(), s.Time), s.Database, len(s.Files), text.Bytes(s.Bytes), text.Bytes(s.NewBytes), s.Program)
				names[i], all[i].Files = s.ID, nil
			}
			return c.print(result{msg: map[string]any{"snapshots": all}, names: names, print: t.Write})
		},
	}
}

func backupVerifyCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "verify FOLDER [SNAPSHOT]", Short: "Read a backup and compare every checksum",
		Long: `Read all that the snapshots of a backup need, or one of them, and compare every
checksum. What is damaged is mended by the next yunhe backup --full, as far as
the platform still has it.`,
		Args: takes(1, 2, "the folder of the backup and a snapshot"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := backup.Open(args[0])
			if err != nil {
				return err
			}
			var which []backup.Snapshot
			if len(args) == 1 {
				which, err = r.Snapshots()
			} else {
				which = make([]backup.Snapshot, 1)
				which[0], err = r.Snapshot(args[1])
			}
			if err != nil {
				return err
			}
			line := c.progressLine()
			chunks, damage, err := r.Verify(cmd.Context(), which, func(done, all int) {
				line.show(fmt.Sprintf("%3d%%  %d of %s read", 100*done/all, done, text.Count(all, "chunk")))
			})
			line.clear()
			if err != nil {
				return err
			}
			err = c.print(result{msg: map[string]any{"snapshots": len(which), "chunks": chunks, "damage": damage}, print: func(w io.Writer, color bool) error {
				if len(damage) == 0 {
					_, err := fmt.Fprintf(w, "%s, %s: all as they were\n", text.Count(len(which), "snapshot"), text.Count(chunks, "chunk"))
					return err
				}
				t := text.NewTable("CHUNK", "PROBLEM", "NEEDED BY", "FILE")
				for _, d := range damage {
					t.Row(d.Chunk[:16], d.Problem, d.Snapshot, d.Path)
				}
				return t.Write(w, color)
			}})
			if err == nil && len(damage) > 0 {
				return fault.New(fault.Internal, "%s of %d damaged; run yunhe backup --full to write them again", text.Count(len(damage), "chunk"), chunks)
			}
			return err
		},
	}
}

func backupPruneCommand(c *cli) *cobra.Command {
	var keep int
	cmd := &cobra.Command{
		Use: "prune FOLDER --keep N", Short: "Remove old snapshots and what only they need",
		Args: takes(1, 1, "the folder of the backup"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if keep < 1 {
				return usagef("--keep: say how many snapshots to keep, at least 1")
			}
			r, err := backup.Open(args[0])
			if err != nil {
				return err
			}
			snapshots, chunks, bytes, err := r.Prune(cmd.Context(), keep)
			if err != nil {
				return err
			}
			return c.print(result{msg: map[string]any{"snapshots": snapshots, "chunks": chunks, "bytes": bytes}, print: func(w io.Writer, _ bool) error {
				_, err := fmt.Fprintf(w, "removed %s and %s, %s\n", text.Count(snapshots, "snapshot"), text.Count(chunks, "chunk"), text.Bytes(bytes))
				return err
			}})
		},
	}
	cmd.Flags().IntVar(&keep, "keep", 0, "how many of the newest to keep")
	return cmd
}

func restorePlatformCommand(c *cli) *cobra.Command {
	var data, database string
	cmd := &cobra.Command{
		Use: "restore FOLDER [SNAPSHOT]", GroupID: groupServe, Short: "Make a platform's data folder from a snapshot",
		Long: `Make a new data folder from a snapshot of yunhe backup, the newest if none is
named. Every checksum is compared on the way, and the database checked; if
something is wrong there is no folder. A platform that was on PostgreSQL needs an
empty database as well (pg_restore and psql are needed).

Start the platform on the folder then, at the address the old one had, and never
both: gateways and drivers find it again with the keys they have.`,
		Example: `  yunhe restore /mnt/backup --data /var/lib/yunhe-new
  yunhe serve --data /var/lib/yunhe-new`,
		Args: takes(1, 2, "the folder of the backup and a snapshot"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if data == "" {
				return usagef("--data: name the folder to make")
			}
			r, err := backup.Open(args[0])
			if err != nil {
				return err
			}
			id := backup.Latest
			if len(args) > 1 {
				id = args[1]
			}
			s, err := r.Snapshot(id)
			if err != nil {
				return err
			}
			dir, err := filepath.Abs(data)
			if err != nil {
				return fault.Wrap(fault.Invalid, err, "--data: %q is not a folder", data)
			}
			line := c.progressLine()
			err = r.Restore(cmd.Context(), s, dir, database, func(done, all int64) {
				line.show(fmt.Sprintf("%3d%%  %s written", 100*done/max(all, 1), text.Bytes(done)))
			})
			line.clear()
			if err != nil {
				return err
			}
			c.note("restored to %s; start it with yunhe serve --data %s", dir, dir)
			return c.printSnapshot(s)
		},
	}
	cmd.Flags().StringVar(&data, "data", "", "folder to make; it must not exist or be empty")
	cmd.Flags().StringVar(&database, "database", "", "postgres://... of an empty database, if the platform was on PostgreSQL")
	return cmd
}
