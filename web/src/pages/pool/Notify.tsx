// How people are told of alarms: notices in the console, mail, and what became of mails.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { App, Button, Form, Input, List, Select, Switch, Table, type TableColumnsType } from "antd";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { Loaded, Moment, Nothing, Tag } from "../../components/bits";
import { useServerErrors } from "../../components/useServerErrors";
import {
  type Mail,
  Mail_State,
  type NoticeSettings,
  NoticeSettings_Security,
} from "../../gen/yunhe/notices/v1/notices_pb";
import { messageOf } from "../../lib/errors";
import { severityOf } from "../../lib/poolops";
import type { Tone } from "../../lib/states";
import { useClients } from "../../session";

const STATES: Record<Mail_State, { word: "waiting" | "sent" | "failed"; tone: Tone }> = {
  [Mail_State.UNSPECIFIED]: { word: "waiting", tone: "neutral" },
  [Mail_State.WAITING]: { word: "waiting", tone: "waiting" },
  [Mail_State.SENT]: { word: "sent", tone: "good" },
  [Mail_State.FAILED]: { word: "failed", tone: "bad" },
};

export function Notify() {
  const { notices } = useClients();
  const settings = useQuery({
    queryKey: ["notices", "settings"],
    queryFn: ({ signal }) => notices.getNoticeSettings({}, call(signal)),
  });
  return (
    <>
      <Loaded query={settings} rows={4}>
        {(s) => <Settings settings={s} />}
      </Loaded>
      <Notices />
      <Mails />
    </>
  );
}

interface Values {
  inSite: boolean;
  mail: boolean;
  cleared: boolean;
  severity: number;
  recipients: string[];
  sender: string;
  server: string;
  security: NoticeSettings_Security;
  userName: string;
  password: string;
}

function Settings({ settings: s }: { settings: NoticeSettings }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { notices } = useClients();
  const client = useQueryClient();
  const [form] = Form.useForm<Values>();
  const errors = useServerErrors(form, "settings", (path) => path.slice(0, 1));
  const save = useMutation({
    mutationFn: (v: Values) => notices.setNoticeSettings({ settings: { ...v, kinds: s.kinds } }, call()),
    onSuccess: async () => {
      form.setFieldValue("password", "");
      void message.success(t("poolops.saved"));
      await client.invalidateQueries({ queryKey: ["notices"] });
    },
    onError: errors.show,
  });
  const test = useMutation({
    mutationFn: () => notices.tryMail({}, call()),
    onSuccess: () => void message.success(t("poolops.mailSent")),
    onError: (e) => void message.error(messageOf(e)),
  });
  const on = (name: "inSite" | "mail" | "cleared") => (
    <Form.Item name={name} label={t(`poolops.${name}`)} valuePropName="checked">
      <Switch />
    </Form.Item>
  );
  const line = (name: "sender" | "server" | "userName") => (
    <Form.Item name={name} label={t(`poolops.${name}`)}>
      <Input maxLength={300} />
    </Form.Item>
  );
  return (
    <Form
      form={form}
      layout="vertical"
      className="yh-pad"
      data-testid="notice-settings"
      initialValues={{
        inSite: s.inSite,
        mail: s.mail,
        cleared: s.cleared,
        severity: s.severity || 1,
        recipients: s.recipients,
        sender: s.sender,
        server: s.server,
        security: s.security || NoticeSettings_Security.STARTTLS,
        userName: s.userName,
        password: "",
      }}
      onFinish={(v) => {
        errors.show(undefined);
        save.mutate(v);
      }}
    >
      {errors.alert}
      {on("inSite")}
      {on("mail")}
      {on("cleared")}
      <Form.Item name="severity" label={t("poolops.severity")}>
        <Select
          className="yh-w-200"
          options={[1, 2, 3].map((value) => ({
            value,
            label: t("poolops.atLeast", { level: t(`alarm.severities.${severityOf(value)}`) }),
          }))}
        />
      </Form.Item>
      <Form.Item name="recipients" label={t("poolops.recipients")}>
        <Select mode="tags" open={false} suffixIcon={null} tokenSeparators={[",", " "]} />
      </Form.Item>
      {line("sender")}
      {line("server")}
      <Form.Item name="security" label={t("poolops.security")}>
        <Select
          className="yh-w-200"
          options={[
            { value: NoticeSettings_Security.STARTTLS, label: t("poolops.securities.starttls") },
            { value: NoticeSettings_Security.TLS, label: t("poolops.securities.tls") },
            { value: NoticeSettings_Security.NONE, label: t("poolops.securities.none") },
          ]}
        />
      </Form.Item>
      {line("userName")}
      <Form.Item
        name="password"
        label={t("poolops.password")}
        extra={s.hasPassword ? t("poolops.passwordKept") : undefined}
      >
        <Input.Password autoComplete="new-password" maxLength={200} />
      </Form.Item>
      <div className="yh-row">
        <Button type="primary" htmlType="submit" loading={save.isPending} data-testid="save">
          {t("common.save")}
        </Button>
        <Button loading={test.isPending} disabled={s.recipients.length === 0} onClick={() => test.mutate()}>
          {t("poolops.tryMail")}
        </Button>
      </div>
    </Form>
  );
}

function Notices() {
  const { t } = useTranslation();
  const { notices } = useClients();
  const client = useQueryClient();
  const list = useQuery({
    queryKey: ["notices", "list"],
    queryFn: ({ signal }) => notices.listNotices({ pageSize: 20 }, call(signal)),
    refetchInterval: 3000,
  });
  const read = useMutation({
    mutationFn: (noticeId: string) => notices.readNotices({ noticeId }, call()),
    onSuccess: () => client.invalidateQueries({ queryKey: ["notices"] }),
  });
  return (
    <div className="yh-pad">
      <h3>{t("poolops.notices")}</h3>
      <Loaded query={list} rows={3}>
        {(data) => {
          const newest = data.notices[0];
          return (
            <>
              <div className="yh-row">
                <span className="yh-muted">{t("poolops.unread", { count: Number(data.unread) })}</span>
                {newest && data.unread > 0n && (
                  <Button size="small" onClick={() => read.mutate(newest.noticeId)}>
                    {t("poolops.markRead")}
                  </Button>
                )}
              </div>
              <List
                size="small"
                data-testid="notices"
                dataSource={data.notices}
                locale={{ emptyText: <Nothing text={t("poolops.noNotices")} /> }}
                renderItem={(n) => (
                  <List.Item key={n.noticeId}>
                    <span>
                      {n.read ? n.message : <b>{n.message}</b>}{" "}
                      {n.cleared && <span className="yh-muted">{t("alarm.states.cleared")}</span>}
                    </span>
                    <Moment at={n.at} />
                  </List.Item>
                )}
              />
            </>
          );
        }}
      </Loaded>
    </div>
  );
}

function Mails() {
  const { t } = useTranslation();
  const { notices } = useClients();
  const list = useQuery({
    queryKey: ["notices", "mails"],
    queryFn: async ({ signal }) => (await notices.listMails({}, call(signal))).mails,
    refetchInterval: 3000,
  });
  const columns: TableColumnsType<Mail> = [
    { title: t("poolops.time"), key: "at", width: 150, render: (_, m) => <Moment at={m.createdAt} /> },
    {
      title: t("poolops.state"),
      key: "state",
      width: 110,
      render: (_, m) => <Tag tone={STATES[m.state].tone} text={t(`poolops.mailStates.${STATES[m.state].word}`)} />,
    },
    {
      title: t("poolops.attempts"),
      key: "attempts",
      width: 90,
      align: "right",
      render: (_, m) => <span className="yh-num">{String(m.attempts)}</span>,
    },
    {
      title: t("poolops.recipients"),
      key: "to",
      width: 220,
      ellipsis: true,
      render: (_, m) => m.recipients.join(" "),
    },
    { title: t("poolops.message"), key: "subject", ellipsis: true, render: (_, m) => m.subject },
    { title: t("poolops.problem"), key: "problem", ellipsis: true, render: (_, m) => m.problem },
  ];
  return (
    <div className="yh-pad">
      <h3>{t("poolops.mails")}</h3>
      <Loaded query={list} rows={2}>
        {(mails) => (
          <Table
            size="small"
            rowKey="mailId"
            columns={columns}
            dataSource={mails}
            pagination={{ pageSize: 10, hideOnSinglePage: true }}
            scroll={{ x: 1000 }}
            data-testid="mails"
            locale={{ emptyText: <Nothing text={t("poolops.noMails")} /> }}
          />
        )}
      </Loaded>
    </div>
  );
}
