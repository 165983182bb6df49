// The library: groups of tags, and what values each tag may have where.
import { PlusOutlined } from "@ant-design/icons";
import { toJson } from "@bufbuild/protobuf";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { App, Button, Checkbox, Drawer, Form, Input, Select, Switch, type TableColumnsType, Tooltip } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { call, saveFile } from "../../api";
import { Loaded, Tag as StateTag } from "../../components/bits";
import { ConfirmButton } from "../../components/ConfirmButton";
import { useTagLibrary } from "../../components/ObjectTags";
import { ListTable } from "../../components/Pager";
import { useServerErrors } from "../../components/useServerErrors";
import {
  Setter,
  SharedTagsSchema,
  type Tag,
  type TagGroup,
  TagStatus,
  ValueType,
} from "../../gen/yunhe/tags/v1/tags_pb";
import { messageOf } from "../../lib/errors";
import { formatCount, NONE } from "../../lib/format";
import { kindName, OBJECT_KINDS, setterName, tagTitle, valueTypeName } from "../../lib/tags";
import { useClients, useSession } from "../../session";
import { Adopt } from "./Share";

export function useTagGroups() {
  const { tags } = useClients();
  return useQuery({
    queryKey: ["tags", "groups"],
    queryFn: async ({ signal }) => (await tags.listTagGroups({}, call(signal))).groups,
  });
}

const groupTitle = (g: TagGroup, language: string) => (language === "zh" ? g.titleZh || g.title : g.title) || g.groupId;

/** Kinds of object in words; "all" for none. */
export function useKindTexts() {
  const { t } = useTranslation();
  return (kinds: readonly number[]) =>
    kinds.length === 0 ? t("tag.kinds.any") : kinds.map((k) => t(`tag.kinds.${kindName(k)}`)).join(", ");
}

export function Library() {
  const { t, i18n } = useTranslation();
  const { can } = useSession();
  const groups = useTagGroups();
  const library = useTagLibrary();
  const kinds = useKindTexts();
  const [group, setGroup] = useState<string>();
  const [tag, setTag] = useState<Tag | "new">();
  const [editing, setEditing] = useState<TagGroup | "new">();
  const [adopting, setAdopting] = useState(false);
  const write = can("registry.write");
  const columns: TableColumnsType<Tag> = [
    {
      title: t("tag.tag"),
      key: "key",
      width: 220,
      ellipsis: true,
      render: (_, x) => (
        <Button type="link" className="yh-link-cell" onClick={() => setTag(x)}>
          <span className="yh-job-link">
            <b>{tagTitle(x, i18n.language)}</b>
            <small>{x.key}</small>
          </span>
        </Button>
      ),
    },
    {
      title: t("tag.group"),
      key: "group",
      width: 130,
      render: (_, x) => {
        const g = groups.data?.find((y) => y.groupId === x.groupId);
        return g ? groupTitle(g, i18n.language) : x.groupId || NONE;
      },
    },
    {
      title: t("tag.values"),
      key: "values",
      width: 230,
      ellipsis: true,
      render: (_, x) =>
        x.allowedValues.length > 0 ? x.allowedValues.join(", ") : t(`tag.valueTypes.${valueTypeName(x.valueType)}`),
    },
    { title: t("tag.appliesTo"), key: "kinds", width: 200, ellipsis: true, render: (_, x) => kinds(x.kinds) },
    {
      title: t("tag.inherited"),
      key: "inherited",
      width: 90,
      render: (_, x) => t(x.inherited ? "common.yes" : "common.no"),
    },
    { title: t("tag.setter"), key: "setter", width: 130, render: (_, x) => t(`tag.setters.${setterName(x.setter)}`) },
    {
      title: t("tag.carriedBy"),
      key: "objects",
      width: 90,
      align: "right",
      render: (_, x) => <span className="yh-num">{formatCount(x.objects)}</span>,
    },
    {
      title: t("tag.rules"),
      key: "rules",
      width: 170,
      ellipsis: true,
      render: (_, x) => (x.rules.length > 0 ? <Link to="/tags?tab=rules">{x.rules.join(", ")}</Link> : NONE),
    },
    {
      title: t("registry.state"),
      key: "status",
      width: 110,
      render: (_, x) =>
        x.status === TagStatus.RETIRED ? (
          <StateTag tone="neutral" text={t("tag.retired")} />
        ) : (
          <StateTag tone="good" text={t("tag.active")} />
        ),
    },
  ];
  return (
    <>
      <div className="yh-filters ant-form">
        <Loaded query={groups} rows={1}>
          {(list) => (
            <Select
              allowClear
              className="yh-w-200"
              placeholder={t("tag.anyGroup")}
              aria-label={t("tag.group")}
              value={group}
              onChange={setGroup}
              options={list.map((g) => ({
                value: g.groupId,
                label: `${groupTitle(g, i18n.language)} (${formatCount(g.tags)})`,
              }))}
            />
          )}
        </Loaded>
        {write && group && (
          <Button onClick={() => setEditing(groups.data?.find((g) => g.groupId === group))}>
            {t("tag.editGroup")}
          </Button>
        )}
        <span className="yh-grow" />
        <ShareButton group={group ?? ""} />
        {write && (
          <>
            <Button onClick={() => setAdopting(true)} data-testid="adopt-tags">
              {t("tag.adopt")}
            </Button>
            <Button icon={<PlusOutlined aria-hidden />} onClick={() => setEditing("new")}>
              {t("tag.newGroup")}
            </Button>
            <Button type="primary" icon={<PlusOutlined aria-hidden />} onClick={() => setTag("new")}>
              {t("tag.define")}
            </Button>
          </>
        )}
      </div>
      <Loaded query={library} rows={8}>
        {(list) => (
          <ListTable
            rowKey="key"
            columns={columns}
            dataSource={list.filter((x) => !group || x.groupId === group)}
            tableLayout="fixed"
            scroll={{ x: 1370 }}
            pageSize={50}
            empty={t("tag.noneDefined")}
          />
        )}
      </Loaded>
      <Drawer open={adopting} onClose={() => setAdopting(false)} size={760} title={t("tag.adoptTitle")} destroyOnHidden>
        <Adopt onDone={() => setAdopting(false)} />
      </Drawer>
      <Drawer
        open={tag !== undefined}
        onClose={() => setTag(undefined)}
        size={560}
        title={tag === "new" ? t("tag.define") : tag?.key}
        destroyOnHidden
      >
        {tag && (
          <TagForm tag={tag === "new" ? undefined : tag} groups={groups.data ?? []} onDone={() => setTag(undefined)} />
        )}
      </Drawer>
      <Drawer
        open={editing !== undefined}
        onClose={() => setEditing(undefined)}
        size={480}
        title={editing === "new" ? t("tag.newGroup") : t("tag.editGroup")}
        destroyOnHidden
      >
        {editing && (
          <GroupForm
            group={editing === "new" ? undefined : editing}
            onDone={(gone) => {
              setEditing(undefined);
              if (gone) setGroup(undefined);
            }}
          />
        )}
      </Drawer>
    </>
  );
}

/** A file of the library, or of a group, for another platform. */
function ShareButton({ group }: { group: string }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { tags } = useClients();
  const share = useMutation({
    mutationFn: () => tags.shareTags({ groupId: group }, call()),
    onSuccess: (shared) =>
      saveFile(
        new Blob([JSON.stringify(toJson(SharedTagsSchema, shared), null, 2)], { type: "application/json" }),
        `tags${group && `-${group}`}.json`,
      ),
    onError: (e) => void message.error(messageOf(e)),
  });
  return (
    <Tooltip title={t("tag.shareHelp")}>
      <Button loading={share.isPending} onClick={() => share.mutate()} data-testid="share-tags">
        {t("tag.share")}
      </Button>
    </Tooltip>
  );
}

interface TagValues {
  key: string;
  title: string;
  titleZh: string;
  groupId?: string;
  description: string;
  valueType: ValueType;
  allowedValues: string[];
  kinds: number[];
  setter: Setter;
  inherited: boolean;
  hiddenFromPolicies: boolean;
  retired: boolean;
}

function TagForm({ tag, groups, onDone }: { tag?: Tag; groups: TagGroup[]; onDone: () => void }) {
  const { t, i18n } = useTranslation();
  const { message } = App.useApp();
  const { tags } = useClients();
  const client = useQueryClient();
  const [form] = Form.useForm<TagValues>();
  const errors = useServerErrors(form, "tag");
  const locked = tag !== undefined && !tag.operations.includes("update");
  const save = useMutation({
    mutationFn: ({ retired, ...v }: TagValues) => {
      const next = {
        ...v,
        key: tag?.key ?? v.key,
        groupId: v.groupId ?? "",
        status: retired ? TagStatus.RETIRED : TagStatus.ACTIVE,
        version: tag?.version ?? 0n,
      };
      return tag ? tags.updateTag({ tag: next }, call()) : tags.createTag({ tag: next }, call());
    },
    onSuccess: async () => {
      void message.success(t("tag.saved"));
      await client.invalidateQueries({ queryKey: ["tags"] });
      onDone();
    },
    onError: errors.show,
  });
  return (
    <Form
      form={form}
      layout="vertical"
      disabled={locked}
      scrollToFirstError={{ block: "center", focus: true }}
      initialValues={{
        key: tag?.key,
        title: tag?.title ?? "",
        titleZh: tag?.titleZh ?? "",
        groupId: tag?.groupId || undefined,
        description: tag?.description ?? "",
        valueType: tag?.valueType || ValueType.TEXT,
        allowedValues: tag?.allowedValues ?? [],
        kinds: tag?.kinds ?? [],
        setter: tag?.setter || Setter.OPERATORS,
        inherited: tag?.inherited ?? false,
        hiddenFromPolicies: tag?.hiddenFromPolicies ?? false,
        retired: tag?.status === TagStatus.RETIRED,
      }}
      onFinish={(v) => {
        errors.show(undefined);
        save.mutate(v);
      }}
    >
      {errors.alert}
      <Form.Item
        name="key"
        label={t("tag.key")}
        extra={t("tag.keyHelp")}
        rules={[
          { required: true, message: t("form.required") },
          { pattern: /^[a-z][a-z0-9._/-]{0,62}$/, message: t("tag.keyHelp") },
        ]}
      >
        <Input disabled={tag !== undefined} autoFocus={!tag} autoComplete="off" />
      </Form.Item>
      <div className="yh-cols-2">
        <Form.Item name="title" label={t("tag.titleEn")}>
          <Input autoComplete="off" />
        </Form.Item>
        <Form.Item name="titleZh" label={t("tag.titleZh")}>
          <Input autoComplete="off" />
        </Form.Item>
        <Form.Item name="groupId" label={t("tag.group")} rules={[{ required: true, message: t("form.required") }]}>
          <Select options={groups.map((g) => ({ value: g.groupId, label: groupTitle(g, i18n.language) }))} />
        </Form.Item>
        <Form.Item name="setter" label={t("tag.setter")}>
          <Select
            options={[Setter.OPERATORS, Setter.ADMINISTRATORS, Setter.RULES].map((s) => ({
              value: s,
              label: t(`tag.setters.${setterName(s)}`),
            }))}
          />
        </Form.Item>
        <Form.Item name="valueType" label={t("tag.valueType")}>
          <Select
            options={[ValueType.TEXT, ValueType.BOOLEAN, ValueType.NUMBER].map((v) => ({
              value: v,
              label: t(`tag.valueTypes.${valueTypeName(v)}`),
            }))}
          />
        </Form.Item>
        <Form.Item name="allowedValues" label={t("tag.allowed")}>
          <Select mode="tags" open={false} suffixIcon={null} tokenSeparators={[","]} placeholder={t("form.words")} />
        </Form.Item>
      </div>
      <Form.Item name="kinds" label={t("tag.appliesTo")} extra={t("tag.kindsHelp")}>
        <Select
          mode="multiple"
          options={OBJECT_KINDS.map((k) => ({ value: k, label: t(`tag.kinds.${kindName(k)}`) }))}
        />
      </Form.Item>
      <Form.Item name="description" label={t("tag.description")}>
        <Input.TextArea autoSize={{ minRows: 2, maxRows: 6 }} maxLength={512} />
      </Form.Item>
      <Form.Item name="inherited" valuePropName="checked">
        <Checkbox>{t("tag.inheritedHelp")}</Checkbox>
      </Form.Item>
      <Form.Item name="hiddenFromPolicies" valuePropName="checked">
        <Checkbox>{t("tag.hiddenHelp")}</Checkbox>
      </Form.Item>
      {tag && (
        <Form.Item name="retired" label={t("tag.retire")} valuePropName="checked" extra={t("tag.retireHelp")}>
          <Switch />
        </Form.Item>
      )}
      <div className="yh-row">
        <Button type="primary" htmlType="submit" loading={save.isPending} data-testid="save-tag">
          {t(tag ? "common.save" : "tag.define")}
        </Button>
        {tag?.operations.includes("delete") && <DeleteTag tag={tag} onDone={onDone} />}
      </div>
    </Form>
  );
}

function DeleteTag({ tag, onDone }: { tag: Tag; onDone: () => void }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { tags } = useClients();
  const client = useQueryClient();
  const used = tag.objects > 0n || tag.rules.length > 0;
  const remove = useMutation({
    mutationFn: () => tags.deleteTag({ key: tag.key, withValues: used }, call()),
    onSuccess: async () => {
      void message.success(t("tag.deleted"));
      await client.invalidateQueries({ queryKey: ["tags"] });
      onDone();
    },
    onError: (e) => void message.error(messageOf(e)),
  });
  return (
    <ConfirmButton
      title={t("tag.deleteTitle", { key: tag.key })}
      content={
        used ? t("tag.deleteUsed", { objects: formatCount(tag.objects), rules: tag.rules.length }) : t("tag.deleteHelp")
      }
      act={() => remove.mutateAsync()}
      pending={remove.isPending}
    />
  );
}

interface GroupValues {
  groupId: string;
  title: string;
  titleZh: string;
  description: string;
  kinds: number[];
}

function GroupForm({ group, onDone }: { group?: TagGroup; onDone: (gone: boolean) => void }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { tags } = useClients();
  const client = useQueryClient();
  const [form] = Form.useForm<GroupValues>();
  const errors = useServerErrors(form, "group");
  const refresh = () => client.invalidateQueries({ queryKey: ["tags"] });
  const save = useMutation({
    mutationFn: (v: GroupValues) => tags.putTagGroup({ group: { ...v, groupId: group?.groupId ?? v.groupId } }, call()),
    onSuccess: async () => {
      await refresh();
      onDone(false);
    },
    onError: errors.show,
  });
  const remove = useMutation({
    mutationFn: () => tags.deleteTagGroup({ groupId: group?.groupId ?? "" }, call()),
    onSuccess: async () => {
      await refresh();
      onDone(true);
    },
    onError: (e) => void message.error(messageOf(e)),
  });
  return (
    <Form
      form={form}
      layout="vertical"
      initialValues={group ?? { title: "", titleZh: "", description: "", kinds: [] }}
      onFinish={(v) => {
        errors.show(undefined);
        save.mutate(v);
      }}
    >
      {errors.alert}
      <Form.Item
        name="groupId"
        label={t("registry.id")}
        rules={[
          { required: true, message: t("form.required") },
          { max: 32, message: t("form.max", { count: 32 }) },
        ]}
      >
        <Input disabled={group !== undefined} autoFocus autoComplete="off" />
      </Form.Item>
      <Form.Item name="title" label={t("tag.titleEn")}>
        <Input autoComplete="off" />
      </Form.Item>
      <Form.Item name="titleZh" label={t("tag.titleZh")}>
        <Input autoComplete="off" />
      </Form.Item>
      <Form.Item name="kinds" label={t("tag.appliesTo")}>
        <Select
          mode="multiple"
          options={OBJECT_KINDS.map((k) => ({ value: k, label: t(`tag.kinds.${kindName(k)}`) }))}
        />
      </Form.Item>
      <Form.Item name="description" label={t("tag.description")}>
        <Input.TextArea autoSize={{ minRows: 2, maxRows: 6 }} maxLength={512} />
      </Form.Item>
      <div className="yh-row">
        <Button type="primary" htmlType="submit" loading={save.isPending}>
          {t("common.save")}
        </Button>
        {group && (
          <Button danger loading={remove.isPending} disabled={group.tags > 0n} onClick={() => remove.mutate()}>
            {t("common.delete")}
          </Button>
        )}
      </div>
    </Form>
  );
}
