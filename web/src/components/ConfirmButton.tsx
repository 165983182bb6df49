// A button for what cannot be taken back: it asks first.
import { App, Button } from "antd";
import { useTranslation } from "react-i18next";

/** Without text it says "Delete". A failure of act is told by who runs it. */
export function ConfirmButton({
  text,
  title,
  content,
  act,
  pending,
  small,
  testId,
}: {
  text?: string;
  title: string;
  content?: string;
  act: () => Promise<unknown>;
  pending?: boolean;
  small?: boolean;
  testId?: string;
}) {
  const { t } = useTranslation();
  const { modal } = App.useApp();
  const shown = text ?? t("common.delete");
  return (
    <Button
      danger
      size={small ? "small" : "middle"}
      loading={pending ?? false}
      data-testid={testId}
      onClick={() =>
        void modal.confirm({
          title,
          content,
          okText: shown,
          okButtonProps: { danger: true },
          onOk: () => act().catch(() => undefined),
        })
      }
    >
      {shown}
    </Button>
  );
}
