package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	tagsv1 "yunhe.dev/yunhe/gen/yunhe/tags/v1"
)

func tagShareCommand(c *cli) *cobra.Command {
	var group string
	cmd := &cobra.Command{
		Use: "share [KEY...]", Short: "Print tags of the library for another platform to adopt",
		Long: `Prints tags of the library, with their groups and the rules that set them, as a
document that another platform takes over with "yunhe tag adopt". Without keys
it is the whole library.`,
		Example: "  yunhe tag share power.green >green.json\n  yunhe --context other tag adopt -f green.json --dry-run",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			s, err := a.tags.ShareTags(cmd.Context(), &tagsv1.ShareTagsRequest{Keys: args, GroupId: group})
			if err != nil {
				return err
			}
			names := make([]string, len(s.GetTags()))
			for i, t := range s.GetTags() {
				names[i] = t.GetKey()
			}
			return c.print(result{msg: s, names: names, print: func(w io.Writer, _ bool) error {
				b, err := encodeJSON(s)
				if err == nil {
					_, err = w.Write(b)
				}
				return err
			}})
		},
	}
	cmd.Flags().StringVar(&group, "group", "", "only tags of this group")
	return cmd
}

func tagAdoptCommand(c *cli) *cobra.Command {
	var file string
	req := &tagsv1.AdoptTagsRequest{Shared: &tagsv1.SharedTags{}}
	cmd := &cobra.Command{
		Use: "adopt -f FILE", Short: "Take over tags that another platform shares",
		Long: `Takes over groups, tags and rules that "yunhe tag share" printed. What is here
already and different stays as it is, and is said, unless --replace is given.
Exit status 1 if something was refused or is different.`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return &usageError{msg: "-f is missing", hint: "`yunhe tag share` prints what to adopt"}
			}
			b, err := os.ReadFile(file)
			if file == "-" {
				b, err = io.ReadAll(c.in)
			}
			if err != nil {
				return usagef("%s cannot be read: %v", file, err)
			}
			if err := protojson.Unmarshal(b, req.Shared); err != nil {
				return usagef("%s is not what `yunhe tag share` prints: %v", file, err)
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.tags.AdoptTags(cmd.Context(), req)
			if err != nil {
				return err
			}
			left := 0
			names := make([]string, len(res.GetResults()))
			for i, r := range res.GetResults() {
				names[i] = r.GetId()
				if r.GetOutcome() == "refused" || r.GetOutcome() == "different" {
					left++
				}
			}
			err = c.print(result{msg: res, names: names, print: func(w io.Writer, color bool) error {
				t := text.NewTable("KIND", "ID", "OUTCOME", "MESSAGE")
				for _, r := range res.GetResults() {
					cell := text.Cell{Text: r.GetOutcome()}
					switch r.GetOutcome() {
					case "refused":
						cell.Color = text.Red
					case "different":
						cell.Color = text.Yellow
					case "created", "replaced":
						cell.Color = text.Green
					}
					t.Row(r.GetKind(), r.GetId(), cell, r.GetMessage())
				}
				return t.Write(w, color)
			}})
			if err == nil && left > 0 {
				err = fmt.Errorf("%s not as shared", text.Count(left, "thing"))
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "what was shared; - reads standard input")
	cmd.Flags().BoolVar(&req.Replace, "replace", false, "have what is different become as it is shared")
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "only say what would become of each")
	return cmd
}
