// Specifications and logical groups of the pool: lists of what is made, changed and deleted.
import { type UseQueryResult, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Button, Form, Input, InputNumber, Modal, Popconfirm, Select, Table, type TableColumnsType } from "antd";
import { type ReactNode, useState } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { CreateButton, Loaded, Nothing } from "../../components/bits";
import { useServerErrors } from "../../components/useServerErrors";
import type { PoolGroup, SliceSpec } from "../../gen/yunhe/pool/v1/pool_pb";
import { formatBytes, NONE } from "../../lib/format";
import { EVERY_MS, MIB, share, useChange } from "../../lib/pool";
import { useClients, useSession } from "../../session";

/** A list of things that are made, changed and deleted. */
function Records<T extends object>(props: {
  list: UseQueryResult<T[]>;
  columns: TableColumnsType<T>;
  id: (x: T) => string;
  testId: string;
  create: string;
  empty: string;
  remove: (id: string) => Promise<unknown>;
  /** A form of a new one, or of one that is there. */
  form: (done: () => void, of?: T) => ReactNode;
}) {
  const { t } = useTranslation();
  const { can } = useSession();
  const [open, setOpen] = useState<{ of?: T }>();
  const remove = useChange(props.remove);
  const write = can("scheduler.write");
  const columns = [...props.columns];
  if (write)
    columns.push({
      key: "actions",
      width: 170,
      align: "right",
      render: (_, x) => (
        <div className="yh-row yh-row-end">
          <Button size="small" aria-label={`${t("poolops.edit")} ${props.id(x)}`} onClick={() => setOpen({ of: x })}>
            {t("poolops.edit")}
          </Button>
          <Popconfirm
            title={t("pool.deleteTitle", { name: props.id(x) })}
            okText={t("common.delete")}
            okButtonProps={{ danger: true }}
            onConfirm={() => remove.mutate(props.id(x))}
          >
            <Button size="small" type="text" danger>
              {t("common.delete")}
            </Button>
          </Popconfirm>
        </div>
      ),
    });
  return (
    <>
      {write && (
        <div className="yh-tab-actions">
          <CreateButton text={props.create} onClick={() => setOpen({})} testId={`new-${props.testId}`} />
        </div>
      )}
      <Loaded query={props.list} rows={3}>
        {(data) => (
          <Table
            size="small"
            rowKey={props.id}
            columns={columns}
            dataSource={data}
            tableLayout="fixed"
            scroll={{ x: 900 }}
            pagination={false}
            data-testid={props.testId}
            locale={{ emptyText: <Nothing text={props.empty} /> }}
          />
        )}
      </Loaded>
      <Modal
        open={open !== undefined}
        onCancel={() => setOpen(undefined)}
        footer={null}
        title={open?.of ? props.id(open.of) : props.create}
        destroyOnHidden
      >
        {open && props.form(() => setOpen(undefined), open.of)}
      </Modal>
    </>
  );
}

export function Specs() {
  const { t } = useTranslation();
  const { pool } = useClients();
  const list = useQuery({
    queryKey: ["pool", "specs"],
    queryFn: async ({ signal }) => (await pool.listSliceSpecs({}, call(signal))).specs,
    refetchInterval: EVERY_MS,
  });
  const columns: TableColumnsType<SliceSpec> = [
    { title: t("pool.spec"), key: "spec", render: (_, x) => <b>{x.specId}</b> },
    {
      title: t("pool.share"),
      key: "share",
      width: 130,
      align: "right",
      render: (_, x) => <span className="yh-num">{share(x.computePercent, x.weighted, t("pool.weight"))}</span>,
    },
    {
      title: t("pool.size"),
      key: "size",
      width: 130,
      align: "right",
      render: (_, x) => <span className="yh-num">{formatBytes(x.memoryMib * MIB)}</span>,
    },
    { title: t("pool.model"), key: "model", width: 200, ellipsis: true, render: (_, x) => x.model || NONE },
    {
      title: t("pool.price"),
      key: "price",
      width: 260,
      align: "right",
      render: (_, x) => <span className="yh-num">{String(x.priceFen)}</span>,
    },
  ];
  return (
    <Records
      list={list}
      columns={columns}
      id={(x) => x.specId}
      testId="slice-specs"
      create={t("pool.newSpec")}
      empty={t("pool.noSpecs")}
      remove={(specId) => pool.deleteSliceSpec({ specId }, call())}
      form={(done, of) => (
        <RecordForm
          prefix="spec"
          done={done}
          start={
            of
              ? {
                  specId: of.specId,
                  computePercent: Number(of.computePercent),
                  memoryMib: Number(of.memoryMib),
                  model: of.model,
                  priceFen: Number(of.priceFen),
                }
              : { computePercent: 25, memoryMib: 1024, priceFen: 0 }
          }
          save={(v) => {
            const specId = String(v.specId ?? "").trim();
            return pool.setSliceSpec(
              {
                specId,
                spec: {
                  computePercent: whole(v.computePercent),
                  memoryMib: whole(v.memoryMib),
                  weighted: of?.weighted ?? false,
                  model: String(v.model ?? "").trim(),
                  priceFen: whole(v.priceFen),
                },
              },
              call(),
            );
          }}
        >
          <Id name="specId" label={t("pool.spec")} fixed={!!of} taken={list.data?.map((x) => x.specId)} />
          <Amount name="computePercent" label={t("pool.percent")} />
          <Amount name="memoryMib" label={t("pool.mib")} />
          <Form.Item name="model" label={t("pool.model")} extra={t("pool.modelHelp")}>
            <Input maxLength={100} />
          </Form.Item>
          <Amount name="priceFen" label={t("pool.price")} />
        </RecordForm>
      )}
    />
  );
}

type Values = Record<string, number | string | string[] | undefined>;

const whole = (n: Values[string]) => BigInt(Math.round(Number(n ?? 0)));
const texts = (list: Values[string]) => (Array.isArray(list) ? list : []);

function Amount({ name, label }: { name: string; label: string }) {
  return (
    <Form.Item name={name} label={label}>
      <InputNumber min={0} precision={0} className="yh-w-200" />
    </Form.Item>
  );
}

/** What a record is called: a new one not like one that is there, which saving would replace. */
function Id(props: { name: string; label: string; fixed: boolean; taken: string[] | undefined }) {
  const { t } = useTranslation();
  const free = async (_: unknown, v?: string) => {
    const name = v?.trim() ?? "";
    if (!props.fixed && props.taken?.includes(name)) throw new Error(t("pool.taken", { name }));
  };
  return (
    <Form.Item name={props.name} label={props.label} rules={[{ required: true }, { validator: free }]}>
      <Input maxLength={32} disabled={props.fixed} />
    </Form.Item>
  );
}

function RecordForm(props: {
  prefix: string;
  start: Values;
  save: (v: Values) => Promise<unknown>;
  done: () => void;
  children: ReactNode;
}) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const [form] = Form.useForm<Values>();
  const errors = useServerErrors(form, props.prefix, (path) => path.slice(0, 1));
  const save = useMutation({
    mutationFn: props.save,
    onSuccess: async () => {
      props.done();
      await client.invalidateQueries({ queryKey: ["pool"] });
    },
    onError: errors.show,
  });
  return (
    <Form
      form={form}
      layout="vertical"
      initialValues={props.start}
      onFinish={(v) => {
        errors.show(undefined);
        save.mutate(v);
      }}
    >
      {errors.alert}
      {props.children}
      <Button type="primary" htmlType="submit" loading={save.isPending} data-testid="save">
        {t("common.save")}
      </Button>
    </Form>
  );
}

export function Groups() {
  const { t } = useTranslation();
  const { pool } = useClients();
  const list = useQuery({
    queryKey: ["pool", "groups"],
    queryFn: async ({ signal }) => (await pool.listPoolGroups({}, call(signal))).groups,
    refetchInterval: EVERY_MS,
  });
  const of = (ids: string[]) => ids.join(" ") || t("pool.all");
  const columns: TableColumnsType<PoolGroup> = [
    { title: t("pool.group"), key: "group", width: 140, ellipsis: true, render: (_, g) => <b>{g.groupId}</b> },
    { title: t("pool.tenants"), key: "tenants", ellipsis: true, render: (_, g) => g.tenantIds.join(" ") || NONE },
    { title: t("pool.users"), key: "users", ellipsis: true, render: (_, g) => of(g.userIds) },
    { title: t("pool.members"), key: "members", ellipsis: true, render: (_, g) => of(g.members) },
    {
      title: t("pool.compute"),
      key: "compute",
      width: 140,
      align: "right",
      render: (_, g) => (
        <span className="yh-num">
          {`${g.computeLentPercent} %`}
          {g.computeLimitPercent > 0n && <em className="yh-of"> / {`${g.computeLimitPercent} %`}</em>}
        </span>
      ),
    },
    {
      title: t("pool.memory"),
      key: "memory",
      width: 170,
      align: "right",
      render: (_, g) => (
        <span className="yh-num">
          {formatBytes(g.memoryLentMib * MIB)}
          {g.memoryLimitMib > 0n && <em className="yh-of"> / {formatBytes(g.memoryLimitMib * MIB)}</em>}
        </span>
      ),
    },
  ];
  const names = (name: string, label: string, extra?: string) => (
    <Form.Item name={name} label={label} extra={extra}>
      <Select mode="tags" open={false} suffixIcon={null} tokenSeparators={[",", " "]} />
    </Form.Item>
  );
  return (
    <Records
      list={list}
      columns={columns}
      id={(g) => g.groupId}
      testId="pool-groups"
      create={t("pool.newGroup")}
      empty={t("pool.noGroups")}
      remove={(groupId) => pool.deletePoolGroup({ groupId }, call())}
      form={(done, of) => (
        <RecordForm
          prefix="group"
          done={done}
          start={
            of
              ? {
                  groupId: of.groupId,
                  tenantIds: of.tenantIds,
                  userIds: of.userIds,
                  members: of.members,
                  computeLimitPercent: Number(of.computeLimitPercent),
                  memoryLimitMib: Number(of.memoryLimitMib),
                  maxPriority: of.maxPriority,
                }
              : { tenantIds: ["default"], computeLimitPercent: 0, memoryLimitMib: 0, maxPriority: 0 }
          }
          save={(v) =>
            pool.setPoolGroup(
              {
                groupId: String(v.groupId ?? "").trim(),
                group: {
                  tenantIds: texts(v.tenantIds),
                  userIds: texts(v.userIds),
                  members: texts(v.members),
                  computeLimitPercent: whole(v.computeLimitPercent),
                  memoryLimitMib: whole(v.memoryLimitMib),
                  maxPriority: Number(v.maxPriority ?? 0),
                },
              },
              call(),
            )
          }
        >
          <Id name="groupId" label={t("pool.group")} fixed={!!of} taken={list.data?.map((g) => g.groupId)} />
          {names("tenantIds", t("pool.tenants"))}
          {names("userIds", t("pool.users"), t("pool.usersHelp"))}
          {names("members", t("pool.members"), t("pool.membersHelp"))}
          <Amount name="computeLimitPercent" label={t("pool.limit")} />
          <Amount name="memoryLimitMib" label={t("pool.memoryLimit")} />
          <Amount name="maxPriority" label={t("pool.maxPriority")} />
        </RecordForm>
      )}
    />
  );
}
