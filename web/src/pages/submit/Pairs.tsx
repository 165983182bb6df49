import { CloseOutlined, PlusOutlined } from "@ant-design/icons";
import { Button, Form, Input, Space } from "antd";
import { useTranslation } from "react-i18next";

/** A list of names with values in a form: environment, labels. */
export function Pairs(props: {
  field: string | (string | number)[];
  nameLabel: string;
  valueLabel: string;
  pattern?: RegExp;
}) {
  const { t } = useTranslation();
  const { pattern } = props;
  return (
    <Form.List name={props.field}>
      {(fields, { add, remove }, { errors }) => (
        <>
          {fields.map(({ key, name }) => (
            <Space.Compact key={key} className="yh-pair">
              <Form.Item
                name={[name, "name"]}
                noStyle
                rules={[
                  { required: true, message: t("form.required") },
                  ...(pattern ? [{ pattern, message: t("form.envName") }] : []),
                ]}
              >
                <Input className="yh-mono" placeholder={props.nameLabel} aria-label={props.nameLabel} />
              </Form.Item>
              <Form.Item name={[name, "value"]} noStyle>
                <Input className="yh-mono" placeholder={props.valueLabel} aria-label={props.valueLabel} />
              </Form.Item>
              <Button icon={<CloseOutlined />} aria-label={t("common.remove")} onClick={() => remove(name)} />
            </Space.Compact>
          ))}
          <Button size="small" icon={<PlusOutlined />} onClick={() => add({ name: "", value: "" })}>
            {t("common.add")}
          </Button>
          <Form.ErrorList errors={errors} />
        </>
      )}
    </Form.List>
  );
}
