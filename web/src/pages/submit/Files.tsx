import { CloseOutlined, UploadOutlined } from "@ant-design/icons";
import { App, Button, Checkbox, Input, Upload } from "antd";
import { useTranslation } from "react-i18next";
import { formatBytes } from "../../lib/format";
import type { FileForm } from "../../lib/jobform";

// Limits of the contract, said here so that a large file is not read first.
const MAX_FILE_BYTES = 1 << 20;
const MAX_FILES = 64;

/** Files put into the working directory before the command starts. */
export function Files({ value = [], onChange }: { value?: FileForm[]; onChange?: (files: FileForm[]) => void }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const take = async (list: File[]) => {
    const added: FileForm[] = [];
    for (const file of list) {
      if (file.size > MAX_FILE_BYTES) {
        void message.error(
          t("submit.fileTooLarge", {
            file: file.name,
            size: formatBytes(file.size),
            limit: formatBytes(MAX_FILE_BYTES),
          }),
        );
        continue;
      }
      added.push({ path: file.name, content: new Uint8Array(await file.arrayBuffer()), executable: false });
    }
    const names = new Set(added.map((f) => f.path));
    const next = [...value.filter((f) => !names.has(f.path)), ...added];
    if (next.length > MAX_FILES) void message.error(t("submit.tooManyFiles", { limit: MAX_FILES }));
    onChange?.(next.slice(0, MAX_FILES));
  };
  const change = (index: number, part: Partial<FileForm>) =>
    onChange?.(value.map((f, i) => (i === index ? { ...f, ...part } : f)));
  return (
    <div>
      {value.map((file, i) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: a path is edited in place, its position is what stays
        <div key={i} className="yh-file">
          <Input
            size="small"
            className="yh-mono"
            value={file.path}
            aria-label={t("submit.filePath")}
            onChange={(e) => change(i, { path: e.target.value })}
          />
          <span className="yh-num yh-muted">{formatBytes(file.content.length)}</span>
          <Checkbox checked={file.executable} onChange={(e) => change(i, { executable: e.target.checked })}>
            {t("submit.executable")}
          </Checkbox>
          <Button
            size="small"
            type="text"
            icon={<CloseOutlined />}
            aria-label={t("common.remove")}
            onClick={() => onChange?.(value.filter((_, j) => j !== i))}
          />
        </div>
      ))}
      <Upload
        multiple
        showUploadList={false}
        beforeUpload={(file, list) => {
          // Called once per file with the whole list: take the list once.
          if (file === list[0]) void take(list);
          return false;
        }}
      >
        <Button size="small" icon={<UploadOutlined />}>
          {t("submit.addFiles")}
        </Button>
      </Upload>
    </div>
  );
}
