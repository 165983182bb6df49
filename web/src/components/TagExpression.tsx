// Expressions over the facts and tags of an object.
import { useTranslation } from "react-i18next";
import { call } from "../api";
import type { ObjectKind } from "../gen/yunhe/tags/v1/tags_pb";
import { useClients } from "../session";
import { ExpressionInput } from "./ExpressionInput";

export function TagExpression(props: {
  id?: string;
  value?: string;
  onChange?: (value: string) => void;
  label: string;
  placeholder?: string;
  rows?: number;
  disabled?: boolean;
  kind: ObjectKind;
  /** It is evaluated on this object. */
  object?: string;
  /** It makes a value, not a condition. */
  makesValue?: boolean;
}) {
  const { t } = useTranslation();
  const { tags } = useClients();
  const { kind, object = "", makesValue = false, ...rest } = props;
  return (
    <ExpressionInput
      {...rest}
      checkKey={[kind, object, makesValue]}
      check={async (expression, signal) => {
        const r = await tags.checkExpression({ expression, kind, object, value: makesValue }, call(signal));
        let result: string | undefined;
        if (r.evaluated)
          result = makesValue
            ? t("expression.makes", { object, value: r.value || "–" })
            : r.holds
              ? t("expression.holds", { object })
              : t("expression.fails", { object, reason: r.reason });
        return { problems: r.problems, variables: r.variables, result };
      }}
    />
  );
}
