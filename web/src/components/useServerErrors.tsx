// Puts the server's field violations at the fields of a form; what belongs to
// no field is shown above it.
import { Alert, type FormInstance } from "antd";
import { type ReactNode, useCallback, useState } from "react";
import { type FieldPath, fieldPath, messageOf, violationsOf } from "../lib/errors";

export interface ServerErrors {
  /** What no field shows, to be put above the form. */
  alert: ReactNode;
  /** Takes an error of the server, or undefined to clear. */
  show: (error: unknown) => void;
}

/**
 * envelope is the request field the form edits ("job"); toField maps a path to
 * the field that shows it, by default the path itself if the form has it.
 */
export function useServerErrors<V>(
  form: FormInstance<V>,
  envelope: string,
  toField?: (path: FieldPath) => FieldPath | undefined,
): ServerErrors {
  const [rest, setRest] = useState<string[]>([]);
  const show = useCallback(
    (error: unknown) => {
      if (error === undefined) {
        setRest([]);
        return;
      }
      const known = new Set(form.getFieldsError().map((f) => JSON.stringify(f.name)));
      const atField = new Map<string, { name: FieldPath; errors: string[] }>();
      const left: string[] = [];
      for (const { field, description } of violationsOf(error)) {
        const path = fieldPath(field, envelope);
        const name = toField ? toField(path) : path;
        const key = name && JSON.stringify(name);
        if (!name || !key || !known.has(key)) {
          left.push(field ? `${field}: ${description}` : description);
          continue;
        }
        const entry = atField.get(key) ?? { name, errors: [] };
        entry.errors.push(description);
        atField.set(key, entry);
      }
      // The name's type is the form's own path type, which these paths were checked against above.
      form.setFields([...atField.values()] as Parameters<typeof form.setFields>[0]);
      const first = atField.values().next().value;
      if (first)
        form.scrollToField(first.name as Parameters<typeof form.scrollToField>[0], { block: "center", focus: true });
      setRest(left.length > 0 || atField.size > 0 ? left : [messageOf(error)]);
    },
    [form, envelope, toField],
  );
  const alert =
    rest.length === 0 ? null : (
      <Alert
        type="error"
        showIcon
        className="yh-problem"
        title={rest[0]}
        description={
          rest.length > 1 ? (
            <ul className="yh-plain-list">
              {rest.slice(1).map((text) => (
                <li key={text}>{text}</li>
              ))}
            </ul>
          ) : undefined
        }
      />
    );
  return { alert, show };
}
