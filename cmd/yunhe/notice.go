package main

import (
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	noticesv1 "yunhe.dev/yunhe/gen/yunhe/notices/v1"
	"yunhe.dev/yunhe/internal/fault"
)

func noticeListCommand(c *cli) *cobra.Command {
	var p paging
	var read bool
	cmd := &cobra.Command{
		Use: "notices", Short: "List the notices of alarms, newest first",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res := &noticesv1.ListNoticesResponse{}
			res.Notices, res.NextPageToken, err = pages(p, func(size int32, token string) ([]*noticesv1.Notice, string, error) {
				page, err := a.notices.ListNotices(cmd.Context(), &noticesv1.ListNoticesRequest{PageSize: size, PageToken: token})
				res.Unread = page.GetUnread()
				return page.GetNotices(), page.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			if read && len(res.Notices) > 0 {
				if _, err := a.notices.ReadNotices(cmd.Context(), &noticesv1.ReadNoticesRequest{NoticeId: res.Notices[0].NoticeId}); err != nil {
					return err
				}
			}
			t := text.NewTable("SINCE", "SEVERITY", "STATE", "READ", "MESSAGE")
			var names []string
			for _, x := range res.Notices {
				names = append(names, x.NoticeId)
				t.Row(c.ago(x.At), severities[x.Severity&3], map[bool]string{true: "cleared", false: "raised"}[x.Cleared], map[bool]string{true: "yes", false: "no"}[x.Read], x.Message)
			}
			return c.print(result{msg: res, names: names, print: func(w io.Writer, color bool) error {
				if t.Len() == 0 {
					c.note("there are no notices")
					return nil
				}
				c.noteMore(len(res.Notices), res.NextPageToken)
				return t.Write(w, color)
			}})
		},
	}
	pageFlags(cmd, &p, 100)
	cmd.Flags().BoolVar(&read, "read", false, "say that they have been read")
	return cmd
}

func noticeSettingsCommand(c *cli) *cobra.Command {
	var inSite, mail, cleared bool
	var severity, security, passwordFile string
	x := &noticesv1.NoticeSettings{}
	cmd := &cobra.Command{
		Use: "notify", Short: "Show how people are told of alarms, or change it",
		Long: `Without flags it shows how people are told of alarms: in the console, and by mail.
What is not said stays. The password of the mail server is read from a file, kept
encrypted and never shown.`,
		Example: `  yunhe alarm notify --mail --to ops@example.org --from yunhe@example.org --server mail.example.org:587 --user yunhe --password-file pw
  yunhe alarm notify --severity major --mail=false`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			got, err := a.notices.GetNoticeSettings(cmd.Context(), &noticesv1.GetNoticeSettingsRequest{})
			if err != nil {
				return err
			}
			f := cmd.Flags()
			for flag, set := range map[string]func(){
				"console": func() { got.InSite = inSite }, "mail": func() { got.Mail = mail }, "cleared": func() { got.Cleared = cleared }, "to": func() { got.Recipients = x.Recipients },
				"from": func() { got.Sender = x.Sender }, "server": func() { got.Server = x.Server }, "user": func() { got.UserName = x.UserName },
			} {
				if f.Changed(flag) {
					set()
				}
			}
			if severity != "" {
				if got.Severity = map[string]int32{"warning": 1, "major": 2, "critical": 3}[severity]; got.Severity == 0 {
					return usagef("--severity: want warning, major or critical, got %q", severity)
				}
			}
			if security != "" {
				n, err := enumFlag("--security", security, noticesv1.NoticeSettings_Security_value, "SECURITY_")
				if err != nil {
					return err
				}
				got.Security = noticesv1.NoticeSettings_Security(n)
			}
			if passwordFile != "" {
				c.warnOpen(passwordFile, "a password")
				b, err := os.ReadFile(passwordFile)
				if err != nil {
					return fault.Wrap(fault.Invalid, err, "--password-file: %s cannot be read", passwordFile)
				}
				got.Password = strings.TrimSpace(string(b))
			}
			if f.NFlag() > 0 {
				if got, err = a.notices.SetNoticeSettings(cmd.Context(), &noticesv1.SetNoticeSettingsRequest{Settings: got}); err != nil {
					return err
				}
			}
			return c.print(result{msg: got, print: func(w io.Writer, color bool) error {
				var f text.Facts
				f.Add("Console", onOff(got.InSite))
				f.Add("Mail", onOff(got.Mail))
				f.Add("Severity", "from "+severities[got.Severity&3])
				f.Add("When cleared, too", onOff(got.Cleared))
				f.Add("To", strings.Join(got.Recipients, " "))
				f.Add("From", got.Sender)
				f.Add("Server", got.Server)
				f.Add("Security", strings.TrimSuffix(enumName(got.Security.String(), "SECURITY_"), "unspecified"))
				f.Add("User", got.UserName)
				f.Add("Password", map[bool]string{true: "set"}[got.HasPassword])
				return f.Write(w, color)
			}})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&inSite, "console", true, "notices in the console")
	f.BoolVar(&mail, "mail", false, "notices by mail")
	f.BoolVar(&cleared, "cleared", false, "tell of alarms that are cleared, too")
	f.StringVar(&severity, "severity", "", "of alarms at least so severe: warning, major or critical")
	f.StringSliceVar(&x.Recipients, "to", nil, "addresses that mail goes to; replaces those there are")
	f.StringVar(&x.Sender, "from", "", "address that mail comes from")
	f.StringVar(&x.Server, "server", "", "HOST:PORT of the mail server")
	f.StringVar(&security, "security", "", "none, starttls or tls")
	f.StringVar(&x.UserName, "user", "", "user at the mail server")
	f.StringVar(&passwordFile, "password-file", "", "file with the password at the mail server")
	return cmd
}

func mailListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "mails", Short: "List the mails about alarms of late, and whether they were sent",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.notices.ListMails(cmd.Context(), &noticesv1.ListMailsRequest{})
			if err != nil {
				return err
			}
			t := text.NewTable("MAIL", "SINCE", "STATE", ">ATTEMPTS", "TO", "SUBJECT", "PROBLEM")
			var names []string
			for _, m := range res.Mails {
				names = append(names, m.MailId)
				t.Row(m.MailId, c.ago(m.CreatedAt), enumName(m.State.String(), "STATE_"), strconv.FormatInt(m.Attempts, 10), strings.Join(m.Recipients, " "), m.Subject, m.Problem)
			}
			return c.print(result{msg: res, names: names, print: func(w io.Writer, color bool) error {
				if t.Len() == 0 {
					c.note("there are no mails")
					return nil
				}
				return t.Write(w, color)
			}})
		},
	}
}

func mailTryCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "try-mail", Short: "Send a mail to the recipients now",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			if _, err := a.notices.TryMail(cmd.Context(), &noticesv1.TryMailRequest{}); err != nil {
				return err
			}
			c.note("the mail server has taken the mail")
			return nil
		},
	}
}
