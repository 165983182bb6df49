// How far a center can be relied on: its link, how long its silence is put up
// with, and what it refused.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { App, Button, Form, InputNumber, Modal, Radio, Tooltip } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { Fact, Loaded, Moment, Panel, Tag } from "../../components/bits";
import { ListTable } from "../../components/Pager";
import { useServerErrors } from "../../components/useServerErrors";
import type { Center } from "../../gen/yunhe/registry/v1/registry_pb";
import type { Refusal, Standing } from "../../gen/yunhe/standing/v1/standing_pb";
import { messageOf } from "../../lib/errors";
import { formatCount, formatDuration, NONE } from "../../lib/format";
import { linkName, linkTone } from "../../lib/network";
import { useClients, useSession } from "../../session";

const EVERY_MS = 5000;

const seconds = (n: bigint) => formatDuration(n * 1_000_000n);

export function StandingPanel({ center: c }: { center: Center }) {
  const { t } = useTranslation();
  const { standing } = useClients();
  const one = useQuery({
    queryKey: ["standing", c.aiCenterId],
    queryFn: ({ signal }) => standing.getStanding({ aiCenterId: c.aiCenterId }, call(signal)),
    refetchInterval: EVERY_MS,
  });
  return (
    <Panel title={t("network.standing")}>
      <Loaded query={one} rows={2}>
        {(s) => <Shown standing={s} name={c.name || c.aiCenterId} />}
      </Loaded>
    </Panel>
  );
}

function Shown({ standing: s, name }: { standing: Standing; name: string }) {
  const { t } = useTranslation();
  const { can } = useSession();
  const [open, setOpen] = useState(false);
  const link = linkName(s.link);
  return (
    <div data-testid="standing">
      <div className="yh-facts">
        <Fact label={t("network.link")}>
          <Tooltip title={t(`network.linkHelp.${link}`)}>
            <span>
              <Tag tone={linkTone(s.link)} text={t(`network.links.${link}`)} />
            </span>
          </Tooltip>
        </Fact>
        <Fact label={t("network.since")}>
          <Moment at={s.since} />
        </Fact>
        <Fact label={t("network.heard")}>
          <Moment at={s.heardAt} />
        </Fact>
        <Fact label={t("network.silentFor")}>
          <span className="yh-num">{s.silentSeconds > 0n ? seconds(s.silentSeconds) : NONE}</span>
        </Fact>
        <Fact label={t("network.grace")}>
          <span className="yh-num">
            {s.lostGraceSeconds < 0n ? t("network.graceNever") : seconds(s.lostGraceSeconds)}
          </span>{" "}
          {can("adapters.write") && (
            <Button size="small" type="link" onClick={() => setOpen(true)} data-testid="set-grace">
              {t("network.setGrace")}
            </Button>
          )}
        </Fact>
        <Fact label={t("network.silences")}>{t("network.times", { count: Number(s.silences) })}</Fact>
        <Fact label={t("network.losses")}>{t("network.times", { count: Number(s.losses) })}</Fact>
      </div>
      <Refusals standing={s} />
      <Modal
        open={open}
        onCancel={() => setOpen(false)}
        footer={null}
        title={t("network.graceTitle", { name })}
        destroyOnHidden
      >
        <Grace standing={s} onDone={() => setOpen(false)} />
      </Modal>
    </div>
  );
}

function Refusals({ standing: s }: { standing: Standing }) {
  const { t } = useTranslation();
  const { can } = useSession();
  const { message } = App.useApp();
  const { standing } = useClients();
  const client = useQueryClient();
  const forget = useMutation({
    mutationFn: () => standing.forgetRefusals({ aiCenterId: s.aiCenterId }, call()),
    onSuccess: (now) => {
      client.setQueryData(["standing", s.aiCenterId], now);
      void message.success(t("network.refusalsForgotten"));
    },
    onError: (e) => void message.error(messageOf(e)),
  });
  if (s.refusals.length === 0) return <p className="yh-muted yh-message-below">{t("network.noRefusals")}</p>;
  return (
    <>
      <div className="yh-row yh-after-bars">
        <h3 className="yh-small-title">{t("network.refusals")}</h3>
        <span className="yh-grow" />
        {can("adapters.write") && (
          <Button size="small" loading={forget.isPending} onClick={() => forget.mutate()} data-testid="forget-refusals">
            {t("network.forgetRefusals")}
          </Button>
        )}
      </div>
      <ListTable<Refusal>
        rowKey={(r) => `${r.resourceSpecId} ${r.imageId}`}
        dataSource={s.refusals}
        pageSize={10}
        tableLayout="fixed"
        scroll={{ x: 900 }}
        data-testid="refusals"
        columns={[
          { title: t("network.refusedSpec"), dataIndex: "resourceSpecId", width: 140, ellipsis: true },
          { title: t("network.refusedImage"), dataIndex: "imageId", width: 140, ellipsis: true },
          {
            title: t("network.refusedTimes"),
            key: "count",
            width: 80,
            align: "right",
            render: (_, r) => <span className="yh-num">{formatCount(r.count)}</span>,
          },
          { title: t("network.refusedLast"), key: "last", width: 132, render: (_, r) => <Moment at={r.lastAt} /> },
          { title: t("network.refusedUntil"), key: "until", width: 132, render: (_, r) => <Moment at={r.until} /> },
          { title: t("network.refusedReason"), dataIndex: "reason" },
        ]}
      />
    </>
  );
}

interface Values {
  way: "default" | "seconds" | "ever";
  seconds?: number | null;
}

function Grace({ standing: s, onDone }: { standing: Standing; onDone: () => void }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { standing } = useClients();
  const client = useQueryClient();
  const [form] = Form.useForm<Values>();
  const errors = useServerErrors(form, "");
  const way = Form.useWatch("way", form);
  const save = useMutation({
    mutationFn: (v: Values) =>
      standing.setLostGrace(
        {
          aiCenterId: s.aiCenterId,
          seconds: v.way === "default" ? 0n : v.way === "ever" ? -1n : BigInt(v.seconds ?? 0),
        },
        call(),
      ),
    onSuccess: async () => {
      void message.success(t("network.graceSaved"));
      await client.invalidateQueries({ queryKey: ["standing"] });
      onDone();
    },
    onError: errors.show,
  });
  return (
    <Form
      form={form}
      layout="vertical"
      initialValues={{
        way: s.lostGraceSeconds < 0n ? "ever" : "seconds",
        seconds: s.lostGraceSeconds > 0n ? Number(s.lostGraceSeconds) : 1800,
      }}
      onFinish={(v) => {
        errors.show(undefined);
        save.mutate(v);
      }}
    >
      {errors.alert}
      <p className="yh-help">{t("network.graceHelp")}</p>
      <Form.Item name="way" label={t("network.grace")}>
        <Radio.Group
          options={[
            { value: "default", label: t("network.graceDefault") },
            { value: "seconds", label: t("network.graceSeconds") },
            { value: "ever", label: t("network.graceForEver") },
          ]}
        />
      </Form.Item>
      {way === "seconds" && (
        <Form.Item
          name="seconds"
          label={t("network.graceSeconds")}
          rules={[{ required: true, message: t("form.required") }]}
        >
          <InputNumber min={30} max={2_592_000} precision={0} />
        </Form.Item>
      )}
      <Button type="primary" htmlType="submit" loading={save.isPending} data-testid="save-grace">
        {t("common.save")}
      </Button>
    </Form>
  );
}
