// An expression that the platform checks while it is typed: what is wrong is
// shown below the place, and what it may read is offered.
import { useQuery } from "@tanstack/react-query";
import { Button, Input } from "antd";
import type { TextAreaRef } from "antd/es/input/TextArea";
import { type ReactNode, useEffect, useId, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { marksOf, wordBefore } from "../lib/expression";

export interface Variable {
  name: string;
  type: string;
  doc: string;
  live?: boolean;
}

/** What the platform says of an expression. */
export interface Checked {
  problems: readonly { line: number; column: number; message: string }[];
  variables: readonly Variable[];
  /** What it comes to, where that is known. */
  result?: ReactNode;
}

/** How long typing must rest before the platform is asked. */
const REST_MS = 300;

/** The value once it has not changed for a moment. */
export function useRested<T>(value: T, ms = REST_MS): T {
  const [rested, setRested] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setRested(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return rested;
}

interface Box {
  id?: string;
  value?: string;
  onChange?: (value: string) => void;
  label: string;
  placeholder?: string;
  rows?: number;
  disabled?: boolean;
}

/** An expression with a check of its own. */
export function ExpressionInput(
  props: Box & {
    /** What else the check depends on. */
    checkKey: unknown[];
    check: (expression: string, signal: AbortSignal) => Promise<Checked>;
  },
) {
  const { value = "" } = props;
  const rested = useRested(value);
  const checked = useQuery({
    queryKey: ["expression", ...props.checkKey, rested],
    queryFn: ({ signal }) => props.check(rested, signal),
    staleTime: 10_000,
    placeholderData: (before) => before,
  });
  return (
    <ExpressionBox
      {...props}
      checked={checked.data}
      of={rested}
      current={rested === value && !checked.isPlaceholderData}
      failed={checked.error !== null}
    />
  );
}

/** An expression and what the platform said of it. */
export function ExpressionBox(
  props: Box & {
    checked: Checked | undefined;
    /** The text that was checked. */
    of: string;
    /** It is the text that is shown. */
    current: boolean;
    failed?: boolean;
  },
) {
  const { t } = useTranslation();
  const { value = "", onChange, checked, current } = props;
  const [word, setWord] = useState("");
  const [open, setOpen] = useState(false);
  const box = useRef<TextAreaRef>(null);
  const noteId = useId();
  const marks = value.trim() === "" ? [] : marksOf(props.of, checked?.problems ?? []);
  const variables = checked?.variables ?? [];
  const offered =
    word.length > 0 ? variables.filter((v) => v.name.startsWith(word) && v.name !== word).slice(0, 8) : [];
  const look = () => {
    const area = box.current?.resizableTextArea?.textArea;
    if (area) setWord(wordBefore(area.value, area.selectionEnd));
  };
  const put = (name: string) => {
    const area = box.current?.resizableTextArea?.textArea;
    if (!area) return;
    const begin = area.selectionEnd - wordBefore(value, area.selectionEnd).length;
    onChange?.(value.slice(0, begin) + name + value.slice(area.selectionEnd));
    setWord("");
    area.focus();
  };
  return (
    <div className="yh-expression">
      <Input.TextArea
        id={props.id}
        ref={box}
        value={value}
        disabled={props.disabled}
        className="yh-mono"
        autoSize={{ minRows: props.rows ?? 2, maxRows: 12 }}
        spellCheck={false}
        aria-label={props.label}
        aria-describedby={noteId}
        aria-invalid={marks.length > 0}
        status={marks.length > 0 ? "error" : undefined}
        placeholder={props.placeholder}
        onChange={(e) => onChange?.(e.target.value)}
        onKeyUp={look}
        onClick={look}
      />
      {offered.length > 0 && (
        <div className="yh-row yh-expression-offer">
          {offered.map((v) => (
            <Button key={v.name} size="small" title={v.doc} onClick={() => put(v.name)}>
              <code>{v.name}</code>
            </Button>
          ))}
        </div>
      )}
      <div id={noteId} aria-live="polite">
        {marks.map((m) => (
          <div
            key={`${m.line}:${m.column}:${m.message}`}
            className="yh-expression-problem"
            data-testid="expression-problem"
          >
            {m.text !== "" && <pre>{`${m.text}\n${m.pointer}`}</pre>}
            <span>
              {m.line > 0 && <b>{t("expression.at", { line: m.line, column: m.column })} </b>}
              {m.message}
            </span>
          </div>
        ))}
        {props.failed && current && value.trim() !== "" && (
          <div className="yh-expression-problem">
            <span>{t("expression.unchecked")}</span>
          </div>
        )}
        {marks.length === 0 && current && value.trim() !== "" && checked && !props.failed && (
          <div className="yh-expression-good" data-testid="expression-good">
            {checked.result ?? t("expression.good")}
          </div>
        )}
      </div>
      {variables.length > 0 && (
        <>
          <Button type="link" size="small" className="yh-flush" aria-expanded={open} onClick={() => setOpen(!open)}>
            {t(open ? "expression.hideVariables" : "expression.variables", { count: variables.length })}
          </Button>
          {open && (
            <dl className="yh-variables">
              {variables.map((v) => (
                <div key={v.name}>
                  <dt>
                    <code>{v.name}</code> <small>{v.type}</small>
                    {v.live && <small className="yh-live"> {t("expression.live")}</small>}
                  </dt>
                  <dd>{v.doc}</dd>
                </div>
              ))}
            </dl>
          )}
        </>
      )}
    </div>
  );
}
