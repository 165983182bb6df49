package notices

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	noticesv1 "yunhe.dev/yunhe/gen/yunhe/notices/v1"
	"yunhe.dev/yunhe/gen/yunhe/notices/v1/noticesv1connect"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/rpc"
)

type handler struct{ s *Service }

// Register mounts the component's API.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(noticesv1connect.NewNoticeServiceHandler(handler{s}, srv.Options()...))
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() || t.UnixMicro() == 0 {
		return nil
	}
	return timestamppb.New(t)
}

func (h handler) ListNotices(ctx context.Context, r *noticesv1.ListNoticesRequest) (*noticesv1.ListNoticesResponse, error) {
	list, next, unread, err := h.s.List(ctx, r.PageSize, r.PageToken)
	if err != nil {
		return nil, err
	}
	res := &noticesv1.ListNoticesResponse{NextPageToken: next, Unread: unread}
	for _, x := range list {
		res.Notices = append(res.Notices, &noticesv1.Notice{NoticeId: x.ID, AlarmId: x.AlarmID, Severity: int32(x.Severity), Cleared: x.Cleared, Message: x.Message, At: stamp(x.At), Read: x.Read})
	}
	return res, nil
}

func (h handler) ReadNotices(ctx context.Context, r *noticesv1.ReadNoticesRequest) (*noticesv1.ReadNoticesResponse, error) {
	return &noticesv1.ReadNoticesResponse{}, h.s.Read(ctx, r.NoticeId)
}

func (h handler) GetNoticeSettings(ctx context.Context, _ *noticesv1.GetNoticeSettingsRequest) (*noticesv1.NoticeSettings, error) {
	return settingsOut(h.s.Settings(ctx))
}

func (h handler) SetNoticeSettings(ctx context.Context, r *noticesv1.SetNoticeSettingsRequest) (*noticesv1.NoticeSettings, error) {
	x := r.Settings
	if x == nil {
		return nil, fault.Fields(fault.Field{Path: "settings", Problem: "is required"})
	}
	in := Settings{InSite: x.InSite, Mail: x.Mail, Severity: int64(x.Severity), Cleared: x.Cleared, Recipients: x.Recipients, Sender: x.Sender, Server: x.Server, Security: Security(x.Security), User: x.UserName, Password: x.Password}
	for _, k := range x.Kinds {
		in.Kinds = append(in.Kinds, int64(k))
	}
	return settingsOut(h.s.Set(ctx, in))
}

func settingsOut(x *Settings, err error) (*noticesv1.NoticeSettings, error) {
	if err != nil {
		return nil, err
	}
	out := &noticesv1.NoticeSettings{InSite: x.InSite, Mail: x.Mail, Severity: int32(x.Severity), Cleared: x.Cleared, Recipients: x.Recipients, Sender: x.Sender, Server: x.Server,
		Security: noticesv1.NoticeSettings_Security(x.Security), UserName: x.User, HasPassword: x.HasPassword, UpdatedAt: stamp(x.UpdatedAt)}
	for _, k := range x.Kinds {
		out.Kinds = append(out.Kinds, int32(k))
	}
	return out, nil
}

func (h handler) TryMail(ctx context.Context, _ *noticesv1.TryMailRequest) (*noticesv1.TryMailResponse, error) {
	return &noticesv1.TryMailResponse{}, h.s.Try(ctx)
}

func (h handler) ListMails(ctx context.Context, _ *noticesv1.ListMailsRequest) (*noticesv1.ListMailsResponse, error) {
	list, err := h.s.Mails(ctx)
	if err != nil {
		return nil, err
	}
	res := &noticesv1.ListMailsResponse{}
	for _, m := range list {
		res.Mails = append(res.Mails, &noticesv1.Mail{MailId: m.ID, NoticeId: m.NoticeID, Recipients: m.Recipients, Subject: m.Subject, State: noticesv1.Mail_State(m.State), Attempts: m.Attempts, Problem: m.Problem,
			CreatedAt: stamp(m.CreatedAt), SentAt: stamp(m.SentAt)})
	}
	return res, nil
}
