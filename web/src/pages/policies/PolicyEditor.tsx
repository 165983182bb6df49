// Writes a policy document. The platform checks the whole of it while it is
// written; what is wrong is shown at the field, in expressions at the place.
import { PlusOutlined } from "@ant-design/icons";
import { clone, create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Alert, App, Button, DatePicker, Input, InputNumber, Radio, Segmented, Select } from "antd";
import dayjs from "dayjs";
import { type ReactNode, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { Problem } from "../../components/bits";
import { ExpressionBox, useRested, type Variable } from "../../components/ExpressionInput";
import { usePresetTitle } from "../../components/usePresetTitle";
import { WeightSliders } from "../../components/WeightSliders";
import {
  PolicyCombination,
  type PolicyDocument,
  PolicyDocumentSchema,
  PolicyFailure,
  PolicyFilterRuleSchema,
  PolicyIncludeSchema,
  PolicyJobWeights,
  PolicyMatchRuleSchema,
  type PolicyModuleUse,
  PolicyModuleUseSchema,
  type PolicyProblem,
  PolicyRulesSchema,
  PolicyScopeSchema,
  PolicyScoreRuleSchema,
} from "../../gen/yunhe/policies/v1/policies_pb";
import { messageOf } from "../../lib/errors";
import { millis } from "../../lib/format";
import { documentText, includeOf, problemsBy, readDocument, type Weighing, weighingOf } from "../../lib/policies";
import { withoutZeros } from "../../lib/weights";
import { usePolicies } from "../../queries";
import { useClients, useSession } from "../../session";
import { Item, Line, Problems, ScopeFields, Vetoes } from "./fields";

type Part = Partial<PolicyDocument>;

const EVALUATORS = ["weighted", "lexicographic", "pareto"];

export function PolicyEditor(props: {
  document: PolicyDocument;
  /** The latest version the change rests on; undefined for a new policy. */
  baseVersion?: bigint;
  onSaved: (policyId: string) => void;
}) {
  const { t } = useTranslation();
  const { policies } = useClients();
  const { can } = useSession();
  const { message } = App.useApp();
  const client = useQueryClient();
  const [document, setDocument] = useState(props.document);
  const [view, setView] = useState<"form" | "text">("form");
  const [text, setText] = useState("");
  const [note, setNote] = useState("");
  const isNew = props.baseVersion === undefined;
  const change = (part: Part) => setDocument((now) => Object.assign(clone(PolicyDocumentSchema, now), part));
  const typed = useMemo(() => {
    if (view === "form") return { document };
    try {
      return { document: readDocument(text) };
    } catch (error) {
      return { error: messageOf(error) };
    }
  }, [view, text, document]);
  const rested = useRested(typed.document, 350);
  const checked = useQuery({
    queryKey: ["policies", "check", rested && documentText(rested)],
    queryFn: ({ signal }) => policies.validatePolicy({ document: rested }, call(signal)),
    enabled: rested !== undefined && can("scheduler.write"),
    placeholderData: (before) => before,
    staleTime: 10_000,
  });
  const current = rested === typed.document && !checked.isPlaceholderData;
  const problems = checked.data?.problems ?? [];
  const errors = problems.filter((x) => !x.warning);
  const save = useMutation({
    mutationFn: (d: PolicyDocument) =>
      isNew
        ? policies.createPolicy({ document: d, note: note.trim() }, call())
        : policies.updatePolicy({ document: d, baseVersion: props.baseVersion, note: note.trim() }, call()),
    onSuccess: async (record) => {
      void message.success(t("record.saved", { version: record.latestVersion.toString() }));
      await client.invalidateQueries({ queryKey: ["policies"] });
      props.onSaved(record.policyId);
    },
  });
  const turn = (next: "form" | "text") => {
    if (next === "text") setText(documentText(document));
    else if (typed.document) setDocument(typed.document);
    else return;
    setView(next);
  };
  return (
    <>
      <div className="yh-row yh-editor-head">
        <Segmented
          value={view}
          onChange={turn}
          options={[
            { value: "form", label: t("record.form") },
            { value: "text", label: "YAML" },
          ]}
        />
        <span className="yh-muted" role="status" data-testid="policy-check">
          {!typed.document || !current
            ? ""
            : errors.length > 0
              ? t("record.problems", { count: errors.length })
              : checked.data
                ? t("record.valid")
                : ""}
        </span>
      </div>
      {view === "text" ? (
        <>
          <Input.TextArea
            className="yh-mono"
            autoSize={{ minRows: 16, maxRows: 36 }}
            value={text}
            spellCheck={false}
            aria-label={t("record.document")}
            onChange={(e) => setText(e.target.value)}
          />
          {typed.error && <Alert className="yh-after-bars" type="error" showIcon title={typed.error} />}
          <ProblemList problems={problems} />
        </>
      ) : (
        <Fields
          document={document}
          isNew={isNew}
          change={change}
          problems={problems}
          checkedDocument={rested}
          current={current}
          jobVariables={checked.data?.jobVariables ?? []}
          centerVariables={checked.data?.centerVariables ?? []}
        />
      )}
      {save.error && <Problem error={save.error} />}
      <div className="yh-row yh-editor-foot">
        <Input
          className="yh-w-320"
          value={note}
          maxLength={512}
          placeholder={t("record.note")}
          aria-label={t("record.note")}
          onChange={(e) => setNote(e.target.value)}
        />
        <Button
          type="primary"
          disabled={!typed.document || !current || errors.length > 0}
          loading={save.isPending}
          onClick={() => typed.document && save.mutate(typed.document)}
          data-testid="save-policy"
        >
          {t(isNew ? "common.create" : "record.saveVersion")}
        </Button>
      </div>
    </>
  );
}

/** Problems with their places, for where no fields are shown. */
export function ProblemList({ problems }: { problems: readonly PolicyProblem[] }) {
  const { t } = useTranslation();
  if (problems.length === 0) return null;
  return (
    <ul className="yh-problem-list" data-testid="policy-problems">
      {problems.map((p) => (
        <li
          key={`${p.field}/${p.line}/${p.column}/${p.problem}`}
          className={p.warning ? "yh-tone-warn" : "yh-tone-bad"}
        >
          <code>{p.field}</code>
          {p.line > 0 && ` ${t("expression.at", { line: p.line, column: p.column })}`} {p.problem}
        </li>
      ))}
    </ul>
  );
}

interface FieldsProps {
  document: PolicyDocument;
  isNew: boolean;
  change: (part: Part) => void;
  problems: readonly PolicyProblem[];
  checkedDocument: PolicyDocument | undefined;
  current: boolean;
  jobVariables: readonly Variable[];
  centerVariables: readonly Variable[];
}

const FIELDS = [
  "policy_id",
  "title",
  "description",
  "priority",
  "match_rules",
  "scope",
  "rules",
  "rules.weights",
  "rules.preset",
  "rules.ranking",
  "rules.evaluator",
  "rules.minimums",
  "rules.filters",
  "rules.scores",
  "combination",
  "includes",
  "job_weights",
  "effective_from",
  "effective_to",
];

function Fields(props: FieldsProps) {
  const { t } = useTranslation();
  const { document: d, change } = props;
  const lists = [
    ...d.matchRules.map((_, i) => `match_rules[${i}]`),
    ...(d.rules?.filters ?? []).map((_, i) => `rules.filters[${i}]`),
    ...(d.rules?.scores ?? []).map((_, i) => `rules.scores[${i}]`),
  ];
  const by = problemsBy(props.problems, [...FIELDS, ...lists, ...lists.map((f) => `${f}.expression`)]);
  const rules = d.rules;
  const setRules = (part: object) => change({ rules: Object.assign(create(PolicyRulesSchema), rules, part) });
  const scope = d.scope;
  const setScope = (part: object) => change({ scope: Object.assign(create(PolicyScopeSchema), scope, part) });
  const checkedOf = props.checkedDocument;
  return (
    <div className="yh-policy-form">
      <ProblemList problems={by.get("") ?? []} />
      <div className="yh-cols-2">
        <Line label={t("registry.id")} problems={by.get("policy_id")} required>
          {(id) => (
            <Input
              id={id}
              value={d.policyId}
              disabled={!props.isNew}
              autoComplete="off"
              onChange={(e) => change({ policyId: e.target.value })}
            />
          )}
        </Line>
        <Line label={t("record.title")} problems={by.get("title")}>
          {(id) => (
            <Input id={id} value={d.title} autoComplete="off" onChange={(e) => change({ title: e.target.value })} />
          )}
        </Line>
        <Line label={t("tag.priority")} problems={by.get("priority")} help={t("record.priorityHelp")}>
          {(id) => (
            <InputNumber
              id={id}
              min={-1000}
              max={1000}
              precision={0}
              value={d.priority}
              onChange={(v) => change({ priority: v ?? 0 })}
            />
          )}
        </Line>
        <Line label={t("record.combination")} problems={by.get("combination")}>
          {(id) => (
            <Select
              id={id}
              value={d.combination || PolicyCombination.FIRST}
              onChange={(combination) => change({ combination })}
              options={[
                { value: PolicyCombination.FIRST, label: t("record.combinations.first") },
                { value: PolicyCombination.MERGE, label: t("record.combinations.merge") },
                { value: PolicyCombination.FILTERS, label: t("record.combinations.filters") },
              ]}
            />
          )}
        </Line>
      </div>
      <Line label={t("tag.description")} problems={by.get("description")}>
        {(id) => (
          <Input.TextArea
            id={id}
            autoSize={{ minRows: 1, maxRows: 5 }}
            maxLength={1024}
            value={d.description}
            onChange={(e) => change({ description: e.target.value })}
          />
        )}
      </Line>
      <fieldset className="yh-fieldset">
        <legend>{t("record.matches")}</legend>
        <p className="yh-field-help">{t("record.matchHelp")}</p>
        <Problems of={by.get("match_rules")} />
        {d.matchRules.map((m, i) => (
          <Item
            // biome-ignore lint/suspicious/noArrayIndexKey: rows have no other name
            key={i}
            label={t("record.matchRule", { number: i + 1 })}
            onRemove={() => change({ matchRules: d.matchRules.filter((_, k) => k !== i) })}
          >
            <ExpressionBox
              label={t("record.matchRule", { number: i + 1 })}
              placeholder={'job.tenant == "research"'}
              value={m.expression}
              onChange={(expression) =>
                change({ matchRules: d.matchRules.map((x, k) => (k === i ? { ...x, expression } : x)) })
              }
              checked={{ problems: placed(by.get(`match_rules[${i}].expression`)), variables: props.jobVariables }}
              of={checkedOf?.matchRules[i]?.expression ?? ""}
              current={props.current}
            />
            <Problems of={by.get(`match_rules[${i}]`)} />
          </Item>
        ))}
        <Button
          size="small"
          icon={<PlusOutlined aria-hidden />}
          onClick={() => change({ matchRules: [...d.matchRules, create(PolicyMatchRuleSchema, {})] })}
        >
          {t("record.addMatch")}
        </Button>
      </fieldset>
      <fieldset className="yh-fieldset">
        <legend>{t("record.scope")}</legend>
        <Problems of={by.get("scope")} />
        <ScopeFields scope={scope} onChange={setScope} />
      </fieldset>
      <fieldset className="yh-fieldset">
        <legend>{t("record.rules")}</legend>
        <Problems of={by.get("rules")} />
        <Weighed {...props} by={by} setRules={setRules} />
        <div className="yh-cols-2">
          <Line label={t("record.evaluator")} problems={by.get("rules.evaluator")}>
            {(id) => (
              <Select
                id={id}
                allowClear
                placeholder="weighted"
                value={rules?.evaluator || undefined}
                onChange={(evaluator?: string) => setRules({ evaluator: evaluator ?? "" })}
                options={EVALUATORS.map((v) => ({ value: v, label: v }))}
              />
            )}
          </Line>
          <Line label={t("record.jobWeights")} problems={by.get("job_weights")}>
            {(id) => (
              <Select
                id={id}
                value={d.jobWeights || PolicyJobWeights.ALLOW}
                onChange={(jobWeights) => change({ jobWeights })}
                options={[
                  { value: PolicyJobWeights.ALLOW, label: t("record.jobWeightsAllow") },
                  { value: PolicyJobWeights.IGNORE, label: t("record.jobWeightsIgnore") },
                ]}
              />
            )}
          </Line>
        </div>
        <Vetoes
          minimums={rules?.minimums ?? {}}
          problems={by.get("rules.minimums")}
          onChange={(minimums) => setRules({ minimums })}
        />
        <h4 className="yh-small-title">{t("record.filters")}</h4>
        <p className="yh-field-help">{t("record.filtersHelp")}</p>
        <Problems of={by.get("rules.filters")} />
        {(rules?.filters ?? []).map((f, i) => {
          const set = (part: object) =>
            setRules({ filters: rules?.filters.map((x, k) => (k === i ? { ...x, ...part } : x)) });
          const label = t("record.filter", { number: i + 1 });
          return (
            <Item
              // biome-ignore lint/suspicious/noArrayIndexKey: the ID is being typed
              key={i}
              label={label}
              onRemove={() => setRules({ filters: rules?.filters.filter((_, k) => k !== i) })}
            >
              <div className="yh-cols-2">
                <Input
                  value={f.filterId}
                  placeholder={t("registry.id")}
                  aria-label={`${label}: ${t("registry.id")}`}
                  onChange={(e) => set({ filterId: e.target.value })}
                />
                <Input
                  value={f.message}
                  placeholder={t("record.filterMessage")}
                  aria-label={`${label}: ${t("record.filterMessage")}`}
                  onChange={(e) => set({ message: e.target.value })}
                />
              </div>
              <By
                module={f.module}
                label={label}
                onModule={(module) => set({ module, expression: "" })}
                expression={
                  <ExpressionBox
                    label={label}
                    placeholder={'tags["green"] == "true"'}
                    value={f.expression}
                    onChange={(expression) => set({ expression })}
                    checked={{
                      problems: placed(by.get(`rules.filters[${i}].expression`)),
                      variables: props.centerVariables,
                    }}
                    of={checkedOf?.rules?.filters[i]?.expression ?? ""}
                    current={props.current}
                  />
                }
              />
              <Problems of={by.get(`rules.filters[${i}]`)} />
            </Item>
          );
        })}
        <Button
          size="small"
          icon={<PlusOutlined aria-hidden />}
          onClick={() =>
            setRules({
              filters: [
                ...(rules?.filters ?? []),
                create(PolicyFilterRuleSchema, { filterId: `filter-${(rules?.filters.length ?? 0) + 1}` }),
              ],
            })
          }
        >
          {t("record.addFilter")}
        </Button>
        <h4 className="yh-small-title">{t("record.scores")}</h4>
        <p className="yh-field-help">{t("record.scoresHelp")}</p>
        <Problems of={by.get("rules.scores")} />
        {(rules?.scores ?? []).map((s, i) => {
          const set = (part: object) =>
            setRules({ scores: rules?.scores.map((x, k) => (k === i ? { ...x, ...part } : x)) });
          const label = t("record.score", { number: i + 1 });
          return (
            <Item
              // biome-ignore lint/suspicious/noArrayIndexKey: the ID is being typed
              key={i}
              label={label}
              onRemove={() => setRules({ scores: rules?.scores.filter((_, k) => k !== i) })}
            >
              <Input
                className="yh-w-240"
                value={s.scoreId}
                placeholder={t("registry.id")}
                aria-label={`${label}: ${t("registry.id")}`}
                onChange={(e) => set({ scoreId: e.target.value })}
              />
              <By
                module={s.module}
                label={label}
                onModule={(module) => set({ module, expression: "" })}
                expression={
                  <ExpressionBox
                    label={label}
                    placeholder="100.0 - double(running)"
                    value={s.expression}
                    onChange={(expression) => set({ expression })}
                    checked={{
                      problems: placed(by.get(`rules.scores[${i}].expression`)),
                      variables: props.centerVariables,
                    }}
                    of={checkedOf?.rules?.scores[i]?.expression ?? ""}
                    current={props.current}
                  />
                }
              />
              <Problems of={by.get(`rules.scores[${i}]`)} />
            </Item>
          );
        })}
        <Button
          size="small"
          icon={<PlusOutlined aria-hidden />}
          onClick={() =>
            setRules({
              scores: [
                ...(rules?.scores ?? []),
                create(PolicyScoreRuleSchema, { scoreId: `own-${(rules?.scores.length ?? 0) + 1}` }),
              ],
            })
          }
        >
          {t("record.addScore")}
        </Button>
      </fieldset>
      <div className="yh-cols-2">
        <Line label={t("record.includes")} problems={by.get("includes")} help={t("record.includesHelp")}>
          {(id) => (
            <Select
              id={id}
              mode="tags"
              open={false}
              suffixIcon={null}
              tokenSeparators={[",", " "]}
              value={d.includes.map((x) => (x.version > 0n ? `${x.policyId}@${x.version}` : x.policyId))}
              onChange={(texts: string[]) =>
                change({
                  includes: texts.flatMap((x) => {
                    const at = includeOf(x);
                    return at ? [create(PolicyIncludeSchema, at)] : [];
                  }),
                })
              }
            />
          )}
        </Line>
        <span />
        <Line label={t("record.effectiveFrom")} problems={by.get("effective_from")}>
          {(id) => <When id={id} at={d.effectiveFrom} onChange={(effectiveFrom) => change({ effectiveFrom })} />}
        </Line>
        <Line label={t("record.effectiveTo")} problems={by.get("effective_to")}>
          {(id) => <When id={id} at={d.effectiveTo} onChange={(effectiveTo) => change({ effectiveTo })} />}
        </Line>
      </div>
    </div>
  );
}

const placed = (problems: readonly PolicyProblem[] | undefined) =>
  (problems ?? []).map((p) => ({ line: p.line, column: p.column, message: p.problem }));

function Weighed(props: FieldsProps & { by: Map<string, PolicyProblem[]>; setRules: (part: object) => void }) {
  const { t, i18n } = useTranslation();
  const { document: d, by, setRules } = props;
  const builtIn = usePolicies();
  const presetTitle = usePresetTitle();
  const [way, setWay] = useState<Weighing>(() => weighingOf(d));
  const list = builtIn.data?.policies ?? [];
  const own = (d.rules?.scores ?? []).filter((s) => s.scoreId !== "");
  const title = (p: (typeof list)[number]) => (i18n.language === "zh" && p.titleZh) || p.title || p.policyId;
  const pick = (next: Weighing) => {
    setWay(next);
    setRules({
      weights: next === "weights" ? (d.rules?.weights ?? {}) : {},
      preset: next === "preset" ? (builtIn.data?.presets[0]?.name ?? "") : "",
      ranking: next === "ranking" ? (d.rules?.ranking ?? []) : [],
    });
  };
  return (
    <>
      <Radio.Group
        value={way}
        aria-label={t("record.weighing")}
        onChange={(e) => pick(e.target.value as Weighing)}
        options={(["none", "preset", "ranking", "weights"] as const).map((w) => ({
          value: w,
          label: t(`record.ways.${w}`),
        }))}
      />
      <div className="yh-after-bars">
        {way === "preset" && (
          <Select
            className="yh-w-240"
            aria-label={t("policy.preset")}
            value={d.rules?.preset || undefined}
            onChange={(preset: string) => setRules({ preset })}
            options={(builtIn.data?.presets ?? []).map((p) => ({ value: p.name, label: presetTitle(p.name) }))}
          />
        )}
        {way === "ranking" && (
          <Select
            mode="multiple"
            className="yh-wide"
            aria-label={t("record.ways.ranking")}
            placeholder={t("record.rankingHelp")}
            value={d.rules?.ranking ?? []}
            onChange={(ranking: string[]) => setRules({ ranking })}
            options={[
              ...list.map((p) => ({ value: p.policyId, label: title(p) })),
              ...own.map((s) => ({ value: s.scoreId, label: s.scoreId })),
            ]}
          />
        )}
        {way === "weights" && (
          <WeightSliders
            policies={[
              ...list,
              ...own.map(
                (s) => ({ policyId: s.scoreId, title: s.scoreId, titleZh: "", doc: "", factors: [] }) as never,
              ),
            ]}
            value={d.rules?.weights ?? {}}
            onChange={(weights) => setRules({ weights: withoutZeros(weights) })}
          />
        )}
      </div>
      <Problems
        of={[...(by.get("rules.weights") ?? []), ...(by.get("rules.preset") ?? []), ...(by.get("rules.ranking") ?? [])]}
      />
    </>
  );
}

/** An expression, or a module instead of it. */
function By(props: {
  module: PolicyModuleUse | undefined;
  label: string;
  onModule: (module: PolicyModuleUse | undefined) => void;
  expression: ReactNode;
}) {
  const { t } = useTranslation();
  const { policies } = useClients();
  const modules = useQuery({
    queryKey: ["policies", "modules"],
    queryFn: async ({ signal }) => (await policies.listPolicyModules({}, call(signal))).modules,
  });
  const { module: m } = props;
  const list = modules.data ?? [];
  if (list.length === 0 && !m) return props.expression;
  const first = list[0];
  return (
    <>
      <Radio.Group
        size="small"
        value={m ? "module" : "expression"}
        aria-label={props.label}
        onChange={(e) =>
          props.onModule(
            e.target.value === "module"
              ? create(PolicyModuleUseSchema, { moduleId: first?.moduleId ?? "", version: first?.version ?? 1n })
              : undefined,
          )
        }
        options={[
          { value: "expression", label: t("record.byExpression") },
          { value: "module", label: t("record.byModule") },
        ]}
      />
      {m ? (
        <div className="yh-row yh-after-bars">
          <Select
            className="yh-w-240"
            aria-label={`${props.label}: ${t("record.byModule")}`}
            value={`${m.moduleId}@${m.version}`}
            onChange={(text: string) => {
              const at = includeOf(text);
              if (at) props.onModule({ ...m, moduleId: at.policyId, version: at.version });
            }}
            options={list.map((x) => ({ value: `${x.moduleId}@${x.version}`, label: `${x.moduleId}@${x.version}` }))}
          />
          <Select
            className="yh-w-240"
            aria-label={`${props.label}: ${t("record.onFailure")}`}
            value={m.onFailure || PolicyFailure.SKIP}
            onChange={(onFailure) => props.onModule({ ...m, onFailure })}
            options={[
              { value: PolicyFailure.SKIP, label: t("record.failureSkip") },
              { value: PolicyFailure.REFUSE, label: t("record.failureRefuse") },
            ]}
          />
        </div>
      ) : (
        props.expression
      )}
    </>
  );
}

function When(props: {
  id: string;
  at: PolicyDocument["effectiveFrom"];
  onChange: (at: PolicyDocument["effectiveFrom"]) => void;
}) {
  const ms = millis(props.at);
  return (
    <DatePicker
      id={props.id}
      showTime
      className="yh-wide"
      value={ms === undefined ? null : dayjs(ms)}
      onChange={(v) => props.onChange(v ? timestampFromMs(v.valueOf()) : undefined)}
    />
  );
}
