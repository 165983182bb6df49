import { Alert, Button, Form, Input } from "antd";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { Logo } from "../components/Logo";
import { LanguageSwitch, ThemeSwitch } from "../components/Shell";
import { isUnauthenticated, messageOf } from "../lib/errors";
import { useSession } from "../session";

export function SignIn() {
  const { t } = useTranslation();
  const { state, signIn } = useSession();
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    document.title = `${t("session.title")} · Yunhe`;
  }, [t]);

  const submit = async ({ key }: { key: string }) => {
    setBusy(true);
    setError(undefined);
    try {
      await signIn(key.trim());
    } catch (e) {
      setError(e);
      setBusy(false);
    }
  };
  const expired = state.phase === "signedOut" && state.expired;
  return (
    <main className="yh-signin">
      <div className="yh-signin-top">
        <LanguageSwitch />
        <ThemeSwitch />
      </div>
      <div className="yh-signin-box">
        <div className="yh-signin-brand">
          <Logo size={44} />
          <div>
            <h1>Yunhe</h1>
            <p>{t("brand.tagline")}</p>
          </div>
        </div>
        {error !== undefined && (
          <Alert
            type="error"
            showIcon
            title={isUnauthenticated(error) ? t("session.wrongKey") : t("session.failed")}
            description={isUnauthenticated(error) ? t("session.wrongKeyHelp") : messageOf(error)}
          />
        )}
        {expired && error === undefined && <Alert type="warning" showIcon title={t("session.expired")} />}
        <Form layout="vertical" requiredMark={false} onFinish={(v: { key: string }) => void submit(v)}>
          <Form.Item
            name="key"
            label={t("session.key")}
            extra={t("session.keyHelp")}
            rules={[{ required: true, whitespace: true, message: t("session.keyMissing") }]}
          >
            <Input.Password size="large" autoFocus autoComplete="current-password" spellCheck={false} />
          </Form.Item>
          <Button type="primary" size="large" block htmlType="submit" loading={busy} data-testid="sign-in">
            {t("session.signIn")}
          </Button>
        </Form>
      </div>
    </main>
  );
}
