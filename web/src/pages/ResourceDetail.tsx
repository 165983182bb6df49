// One resource: what is known of it, its compute identifier, its tags, and what is below it.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { App, Button, Descriptions, Drawer, Form, Input, Modal } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useNavigate, useParams } from "react-router";
import { call } from "../api";
import { Copyable, Labels, Loaded, Moment, PageHead, Panel } from "../components/bits";
import { ConfirmButton } from "../components/ConfirmButton";
import { ObjectTagsPanel } from "../components/ObjectTags";
import { PagedRows, usePaged } from "../components/Pager";
import { FieldLabel } from "../components/SchemaForm";
import { useServerErrors } from "../components/useServerErrors";
import type { Resource } from "../gen/yunhe/registry/v1/resource_pb";
import { messageOf } from "../lib/errors";
import { NONE } from "../lib/format";
import { attributeLines, attributesOf, isRegistered, objectOf, resourcePath } from "../lib/registry";
import { useCenterNames } from "../queries";
import { useClients, useSession } from "../session";
import { ResourceTable } from "./Resources";
import { IdentifierPanel } from "./resources/Identifier";
import { ResourceForm } from "./resources/ResourceForm";
import { ResourceStateTag, useResourceTypes, useTypeTitle } from "./resources/shared";

const EVERY_MS = 10_000;

export function ResourceDetail() {
  const { t } = useTranslation();
  const { resourceId = "" } = useParams();
  const { resources } = useClients();
  const { can } = useSession();
  const resource = useQuery({
    queryKey: ["resources", "one", resourceId],
    queryFn: ({ signal }) => resources.getResource({ resourceId }, call(signal)),
    refetchInterval: EVERY_MS,
  });
  const r = resource.data;
  const [editing, setEditing] = useState(false);
  const [moving, setMoving] = useState(false);
  return (
    <>
      <PageHead
        title={r?.name || resourceId}
        back={{ to: "/resources", label: t("nav.registry") }}
        after={r && <ResourceStateTag state={r.state} />}
        sub={<Copyable text={resourceId} />}
        extra={
          r &&
          can("registry.write") && (
            <div className="yh-row">
              {isRegistered(r) && <Button onClick={() => setEditing(true)}>{t("registry.edit")}</Button>}
              {r.type !== "node" || isRegistered(r) ? (
                <Button onClick={() => setMoving(true)}>{t("registry.move")}</Button>
              ) : null}
              {isRegistered(r) && <Delete resource={r} />}
            </div>
          )
        }
      />
      <Loaded query={resource} rows={10}>
        {(data) => (
          <>
            <div className="yh-grid-2">
              <Facts resource={data} />
              <Attributes resource={data} />
            </div>
            <IdentifierPanel resource={data} />
            <ObjectTagsPanel object={objectOf(data.resourceId)} />
            {data.children > 0n && <Below id={data.resourceId} />}
          </>
        )}
      </Loaded>
      {r && (
        <>
          <Drawer
            open={editing}
            onClose={() => setEditing(false)}
            size={640}
            title={t("registry.edit")}
            destroyOnHidden
          >
            <ResourceForm resource={r} onDone={() => setEditing(false)} />
          </Drawer>
          <Modal
            open={moving}
            onCancel={() => setMoving(false)}
            footer={null}
            title={t("registry.moveTitle", { id: resourceId })}
            destroyOnHidden
          >
            <Move resource={r} onClose={() => setMoving(false)} />
          </Modal>
        </>
      )}
    </>
  );
}

function Facts({ resource: r }: { resource: Resource }) {
  const { t } = useTranslation();
  const title = useTypeTitle();
  const centerName = useCenterNames();
  const link = (id: string) => (id ? <Link to={resourcePath(id)}>{id}</Link> : NONE);
  return (
    <Panel title={t("center.facts")}>
      <Descriptions
        size="small"
        column={1}
        items={[
          { key: "type", label: t("registry.type"), children: title(r.type) },
          { key: "parent", label: t("registry.parent"), children: link(r.parentId) },
          { key: "platform", label: t("registry.platform"), children: link(r.platformId) },
          {
            key: "center",
            label: t("center.name"),
            children: r.aiCenterId ? (
              <Link to={`/centers/${encodeURIComponent(r.aiCenterId)}`}>{centerName(r.aiCenterId)}</Link>
            ) : (
              NONE
            ),
          },
          { key: "region", label: t("registry.region"), children: r.region || NONE },
          { key: "provider", label: t("registry.provider"), children: r.serviceProvider || NONE },
          { key: "tenant", label: t("registry.tenant"), children: r.tenantId || t("registry.everyone") },
          {
            key: "origin",
            label: t("registry.origin"),
            children: isRegistered(r)
              ? t("registry.registered", { version: r.version.toString() })
              : t("registry.joined"),
          },
          { key: "created", label: t("center.created"), children: <Moment at={r.createdAt} long /> },
          { key: "updated", label: t("center.updated"), children: <Moment at={r.updatedAt} long /> },
          { key: "labels", label: t("center.labels"), children: <Labels labels={r.labels} /> },
        ]}
      />
    </Panel>
  );
}

function Attributes({ resource: r }: { resource: Resource }) {
  const { t } = useTranslation();
  const types = useResourceTypes();
  const lines = attributeLines(attributesOf(types.data, r.type), r.attributes ?? {});
  return (
    <Panel title={t("registry.attributes")}>
      {lines.length === 0 ? (
        <span className="yh-none">{NONE}</span>
      ) : (
        <dl className="yh-review yh-flat" data-testid="attributes">
          {lines.map((l) => (
            <div key={l.path} className="yh-review-line">
              <dt>{l.field && !l.path.includes(".") ? <FieldLabel field={l.field} /> : <code>{l.path}</code>}</dt>
              <dd>{l.text}</dd>
            </div>
          ))}
        </dl>
      )}
    </Panel>
  );
}

function Below({ id }: { id: string }) {
  const { t } = useTranslation();
  const { resources } = useClients();
  const paged = usePaged({
    key: ["resources", "below", id],
    everyMs: EVERY_MS,
    fetchPage: async (pageToken, signal) => {
      const res = await resources.listResources({ parentId: id, pageSize: 20, pageToken }, call(signal));
      return { items: res.resources, nextPageToken: res.nextPageToken };
    },
  });
  return (
    <Panel flush title={t("registry.below")}>
      <PagedRows paged={paged}>
        {(rows) => <ResourceTable rows={rows} loading={paged.stale} empty={t("registry.none")} />}
      </PagedRows>
    </Panel>
  );
}

function Move({ resource: r, onClose }: { resource: Resource; onClose: () => void }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { resources } = useClients();
  const client = useQueryClient();
  const [form] = Form.useForm<{ parentId?: string }>();
  const errors = useServerErrors(form, "");
  const move = useMutation({
    mutationFn: (v: { parentId?: string }) =>
      resources.moveResource({ resourceId: r.resourceId, parentId: v.parentId?.trim() ?? "" }, call()),
    onSuccess: async () => {
      void message.success(t("registry.moved"));
      onClose();
      await client.invalidateQueries({ queryKey: ["resources"] });
    },
    onError: errors.show,
  });
  return (
    <Form
      form={form}
      layout="vertical"
      initialValues={{ parentId: r.parentId }}
      onFinish={(v) => {
        errors.show(undefined);
        move.mutate(v);
      }}
    >
      {errors.alert}
      <Form.Item name="parentId" label={t("registry.parent")} extra={t("registry.moveTo")}>
        <Input autoFocus autoComplete="off" />
      </Form.Item>
      <div className="yh-row">
        <Button type="primary" htmlType="submit" loading={move.isPending} data-testid="move-send">
          {t("registry.move")}
        </Button>
        <Button onClick={onClose}>{t("common.cancel")}</Button>
      </div>
    </Form>
  );
}

function Delete({ resource: r }: { resource: Resource }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { resources } = useClients();
  const client = useQueryClient();
  const navigate = useNavigate();
  const remove = useMutation({
    mutationFn: () => resources.deleteResource({ resourceId: r.resourceId, version: r.version }, call()),
    onSuccess: async () => {
      void message.success(t("registry.deleted", { id: r.resourceId }));
      void navigate("/resources");
      await client.invalidateQueries({ queryKey: ["resources"], refetchType: "none" });
    },
    onError: (e) => void message.error(messageOf(e)),
  });
  return (
    <ConfirmButton
      title={t("registry.deleteTitle", { id: r.resourceId })}
      content={t("registry.deleteHelp")}
      act={() => remove.mutateAsync()}
      pending={remove.isPending}
      testId="delete-resource"
    />
  );
}
