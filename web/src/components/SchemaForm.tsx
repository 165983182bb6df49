// Form fields made from a plug-in's configuration schema.
import { CloseOutlined, EyeInvisibleOutlined, EyeOutlined, PlusOutlined, UploadOutlined } from "@ant-design/icons";
import { Button, Form, Input, InputNumber, Select, Switch, Upload } from "antd";
import type { Rule, RuleObject } from "antd/es/form";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { fieldHelp, fieldTitle } from "../i18n/schemadocs";
import type { FieldPath } from "../lib/errors";
import { type Field, isFilled, type Row } from "../lib/schema";
import { usePrefs } from "../prefs";

interface Of {
  field: Field;
  /** Its name in the form it is in: below a list, relative to that list. */
  name: FieldPath;
  /** Its whole path in the form. */
  path: FieldPath;
  /** The optional group it is in, which must be given whole or not at all. */
  within?: { field: Field; path: FieldPath };
}

/** The fields of a group. */
export function SchemaFields(props: { fields: Field[]; name: FieldPath; path: FieldPath; within?: Of["within"] }) {
  return (
    <>
      {props.fields.map((field) => (
        <SchemaField
          key={field.key}
          field={field}
          name={[...props.name, field.key]}
          path={[...props.path, field.key]}
          within={props.within}
        />
      ))}
    </>
  );
}

/** One field with its label and help. */
export function SchemaField(of: Of) {
  const { field, name } = of;
  const help = useHelp(field);
  const rules = useRules(of);
  const label = <FieldLabel field={field} />;
  if (field.kind === "group" || field.kind === "list" || field.kind === "map") {
    return (
      <fieldset className="yh-fieldset">
        <legend>
          {label}
          {field.required && <Star />}
        </legend>
        {help && <p className="yh-field-help">{help}</p>}
        <Inside {...of} />
      </fieldset>
    );
  }
  return (
    <Form.Item
      name={name}
      label={label}
      extra={help}
      dependencies={of.within?.field.fields
        .filter((f) => f.key !== field.key)
        .map((f) => [...(of.within?.path ?? []), f.key])}
      // In an optional group it is required only once the group has anything.
      required={field.required && !of.within}
      rules={rules}
      valuePropName={field.kind === "boolean" ? "checked" : "value"}
    >
      <Control field={field} />
    </Form.Item>
  );
}

function Star() {
  const { t } = useTranslation();
  return (
    <span className="yh-star" title={t("form.required")}>
      *
    </span>
  );
}

/** A field by its title, and by its name in the configuration where that is another word. */
export function FieldLabel({ field }: { field: Field }) {
  const { language } = usePrefs();
  const title = fieldTitle(field, language);
  return (
    <span>
      {title}{" "}
      {title.replace(/[\s_-]/g, "").toLowerCase() !== field.key.replace(/[\s_-]/g, "").toLowerCase() && (
        <code>{field.key}</code>
      )}
    </span>
  );
}

function useHelp(field: Field): string | undefined {
  const { language } = usePrefs();
  return fieldHelp(field, language) || undefined;
}

function Inside({ field, name, path, within }: Of) {
  switch (field.kind) {
    case "group":
      return (
        <div className="yh-group">
          <SchemaFields
            fields={field.fields}
            name={name}
            path={path}
            within={within ?? (field.required ? undefined : { field, path })}
          />
        </div>
      );
    case "map":
      return <MapRows field={field} name={name} path={path} />;
    default:
      return <Items field={field} name={name} path={path} />;
  }
}

/** Names with values, one row each. */
function MapRows({ field, name, path }: Of) {
  const { t } = useTranslation();
  const item = field.item as Field;
  const simple = item.kind !== "group" && item.kind !== "list" && item.kind !== "map";
  return (
    <Form.List name={name} rules={field.required ? [someRule(t("form.required"))] : []}>
      {(rows, { add, remove }, { errors }) => (
        <>
          {rows.map((row, i) => {
            const place = [...path, row.name];
            const nameField = (
              <Form.Item
                name={[row.name, "name"]}
                className="yh-map-key"
                rules={[
                  { required: true, whitespace: true, message: t("form.required") },
                  uniqueRule(path, row.name, t("form.twice")),
                ]}
              >
                <Input
                  className="yh-mono"
                  placeholder={t("form.name")}
                  aria-label={`${field.key} ${i + 1}: ${t("form.name")}`}
                />
              </Form.Item>
            );
            const drop = (
              <Button
                icon={<CloseOutlined aria-hidden />}
                aria-label={`${t("common.remove")}: ${field.key} ${i + 1}`}
                onClick={() => remove(row.name)}
              />
            );
            if (!simple) {
              return (
                <div key={row.key} className="yh-item">
                  <div className="yh-map-row">
                    {nameField}
                    {drop}
                  </div>
                  <Inside field={item} name={[row.name, "value"]} path={[...place, "value"]} />
                </div>
              );
            }
            return (
              <div key={row.key} className="yh-map-row">
                {nameField}
                <MapValue field={item} name={[row.name, "value"]} label={`${field.key} ${i + 1}: ${t("form.value")}`} />
                {drop}
              </div>
            );
          })}
          <AddButton label={field.key} onClick={() => add({} satisfies Row)} />
          <Form.ErrorList errors={errors} />
        </>
      )}
    </Form.List>
  );
}

function MapValue({ field, name, label }: { field: Field; name: FieldPath; label: string }) {
  const rules = useRules({
    field: { ...field, required: field.kind !== "text" && field.kind !== "secret" },
    name,
    path: name,
  });
  const { t } = useTranslation();
  return (
    <Form.Item
      name={name}
      className="yh-map-value"
      rules={rules}
      valuePropName={field.kind === "boolean" ? "checked" : "value"}
    >
      <Control field={{ ...field, placeholder: field.placeholder || t("form.value") }} label={label} />
    </Form.Item>
  );
}

/** A list whose items have fields. */
function Items({ field, name, path }: Of) {
  const { t } = useTranslation();
  const item = field.item as Field;
  return (
    <Form.List name={name} rules={field.required ? [someRule(t("form.required"))] : []}>
      {(rows, { add, remove }, { errors }) => (
        <>
          {rows.map((row, i) => (
            <div key={row.key} className="yh-item">
              <div className="yh-item-head">
                <b>
                  {field.key} {i + 1}
                </b>
                <Button
                  size="small"
                  type="text"
                  icon={<CloseOutlined aria-hidden />}
                  aria-label={`${t("common.remove")}: ${field.key} ${i + 1}`}
                  onClick={() => remove(row.name)}
                />
              </div>
              {item.kind === "group" || item.kind === "list" || item.kind === "map" ? (
                <Inside field={item} name={[row.name]} path={[...path, row.name]} />
              ) : (
                <MapValue field={item} name={[row.name]} label={`${field.key} ${i + 1}`} />
              )}
            </div>
          ))}
          <AddButton label={field.key} onClick={() => add(item.kind === "group" ? {} : undefined)} />
          <Form.ErrorList errors={errors} />
        </>
      )}
    </Form.List>
  );
}

function AddButton({ label, onClick }: { label: string; onClick: () => void }) {
  const { t } = useTranslation();
  return (
    <Button
      size="small"
      icon={<PlusOutlined aria-hidden />}
      aria-label={`${t("common.add")}: ${label}`}
      onClick={onClick}
    >
      {t("common.add")}
    </Button>
  );
}

/** What a value is typed into. Form.Item hands it the value and its ID. */
function Control({ field, label, ...rest }: { field: Field; label?: string; id?: string }) {
  const shared = { ...rest, "aria-label": label, placeholder: field.placeholder };
  switch (field.kind) {
    case "secret":
      return <Input.Password autoComplete="new-password" {...shared} />;
    case "secretText":
      return <SecretText {...shared} />;
    case "integer":
      return <InputNumber precision={0} className="yh-wide" {...shared} />;
    case "number":
      return <InputNumber className="yh-wide" {...shared} />;
    case "boolean":
      return <Switch {...rest} aria-label={label} />;
    case "choice":
      return (
        <Select
          allowClear={!field.required}
          options={field.choices.map((c) => ({ value: c, label: String(c) }))}
          {...shared}
        />
      );
    case "words":
      return <Words {...shared} />;
    case "json":
      return (
        <Input.TextArea className="yh-mono" spellCheck={false} autoSize={{ minRows: 3, maxRows: 14 }} {...shared} />
      );
    default:
      return <Input {...shared} />;
  }
}

function Words(props: { id?: string; placeholder?: string; "aria-label"?: string }) {
  const { t } = useTranslation();
  return (
    <Select mode="tags" open={false} suffixIcon={null} {...props} placeholder={props.placeholder || t("form.words")} />
  );
}

/** Masked lines, typed, pasted or read from a file. */
function SecretText({
  onChange,
  ...rest
}: {
  id?: string;
  value?: string;
  onChange?: (value: string) => void;
  placeholder?: string;
  "aria-label"?: string;
}) {
  const { t } = useTranslation();
  const [shown, setShown] = useState(false);
  return (
    <div className="yh-secret-text">
      <Input.TextArea
        {...rest}
        className={shown ? "yh-mono" : "yh-mono yh-masked"}
        autoComplete="off"
        spellCheck={false}
        autoSize={{ minRows: 4, maxRows: 14 }}
        onChange={(e) => onChange?.(e.target.value)}
      />
      <div className="yh-row">
        <Upload
          showUploadList={false}
          beforeUpload={(file) => {
            void file.text().then(onChange);
            return false;
          }}
        >
          <Button size="small" icon={<UploadOutlined aria-hidden />}>
            {t("form.fromFile")}
          </Button>
        </Upload>
        <Button
          size="small"
          icon={shown ? <EyeInvisibleOutlined aria-hidden /> : <EyeOutlined aria-hidden />}
          aria-pressed={shown}
          onClick={() => setShown(!shown)}
        >
          {t(shown ? "form.hide" : "form.show")}
        </Button>
      </div>
    </div>
  );
}

function someRule(message: string) {
  return {
    validator: (_: RuleObject, rows: unknown[] | undefined) =>
      rows && rows.length > 0 ? Promise.resolve() : Promise.reject(new Error(message)),
  };
}

// Two rows of one name would be one in the configuration.
function uniqueRule(path: FieldPath, row: number, message: string): Rule {
  return ({ getFieldValue }) => ({
    validator: (_, name: string | undefined) => {
      const rows = (getFieldValue(path) ?? []) as Row[];
      const twice = rows.some((r, i) => i < row && name?.trim() && r?.name?.trim() === name.trim());
      return twice ? Promise.reject(new Error(message)) : Promise.resolve();
    },
  });
}

/** What the schema asks of a value, checked before the platform does. */
function useRules({ field, within }: Of): Rule[] {
  const { t } = useTranslation();
  const rules: Rule[] = [];
  if (field.required && field.kind !== "boolean") {
    rules.push(({ getFieldValue }) => ({
      required: !within || isFilled(within.field, getFieldValue(within.path)),
      message: t("form.required"),
      ...(field.kind === "words" ? { type: "array" as const } : {}),
    }));
  }
  if (field.kind === "integer" || field.kind === "number") {
    const { minimum, maximum } = field;
    rules.push({
      validator: (_, value: unknown) => {
        if (typeof value !== "number") return Promise.resolve();
        if (minimum !== undefined && value < minimum)
          return Promise.reject(new Error(t("form.least", { limit: minimum })));
        if (maximum !== undefined && value > maximum)
          return Promise.reject(new Error(t("form.most", { limit: maximum })));
        if (field.kind === "integer" && !Number.isSafeInteger(value))
          return Promise.reject(new Error(t("form.tooLarge")));
        return Promise.resolve();
      },
    });
  }
  const typed = field.kind === "text" || field.kind === "secret" || field.kind === "secretText";
  if (typed && field.maxLength !== undefined) {
    rules.push({ max: field.maxLength, message: t("form.max", { count: field.maxLength }) });
  }
  if (typed && field.pattern !== undefined) {
    const pattern = regularExpression(field.pattern);
    if (pattern) rules.push({ pattern, message: t("form.pattern", { pattern: field.pattern }) });
  }
  if (field.kind === "json") {
    rules.push({
      validator: (_, value: unknown) => {
        if (typeof value !== "string" || value.trim() === "") return Promise.resolve();
        try {
          JSON.parse(value);
          return Promise.resolve();
        } catch (error) {
          return Promise.reject(
            new Error(t("form.json", { problem: error instanceof Error ? error.message : String(error) })),
          );
        }
      },
    });
  }
  return rules;
}

// The platform's patterns are Go's; one that is none here is left to the platform.
function regularExpression(pattern: string): RegExp | undefined {
  try {
    return new RegExp(pattern, "u");
  } catch {
    return undefined;
  }
}
