// Lists that are read page by page: the platform gives a token for the next
// page only, so the way back is remembered here.
import { LeftOutlined, RightOutlined } from "@ant-design/icons";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Button, Table, type TableProps } from "antd";
import { type ReactNode, useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { formatCount } from "../lib/format";
import { Loaded, Nothing } from "./bits";

interface Page<T> {
  items: T[];
  nextPageToken: string;
}

export interface Paged<T> {
  rows: T[] | undefined;
  error: unknown;
  refetch: () => unknown;
  /** The rows are those of the page before, while this one is read. */
  stale: boolean;
  /** Number of the first row. */
  first: number;
  back?: () => void;
  next?: () => void;
}

/** One page at a time of what fetchPage reads; another key begins at the first page. */
export function usePaged<T>(options: {
  key: unknown[];
  fetchPage: (pageToken: string, signal: AbortSignal) => Promise<Page<T>>;
  everyMs?: number;
  enabled?: boolean;
}): Paged<T> {
  const key = JSON.stringify(options.key);
  const [way, setWay] = useState<{ key: string; pages: { token: string; first: number }[] }>({ key, pages: [START] });
  const pages = way.key === key ? way.pages : [START];
  const page = pages.at(-1) ?? START;
  const query = useQuery({
    queryKey: [...options.key, page.token],
    queryFn: ({ signal }) => options.fetchPage(page.token, signal),
    refetchInterval: options.everyMs ?? false,
    enabled: options.enabled ?? true,
    placeholderData: keepPreviousData,
  });
  const rows = query.data?.items;
  const token = query.data?.nextPageToken ?? "";
  const stale = query.isPlaceholderData;
  const empty = rows?.length === 0 && token === "";
  // A page that lost its rows goes back to one that has some.
  useEffect(() => {
    if (empty && pages.length > 1 && !stale) setWay({ key, pages: [START] });
  }, [empty, pages.length, stale, key]);
  return {
    rows,
    error: query.error,
    refetch: query.refetch,
    stale,
    first: page.first,
    back: pages.length > 1 ? () => setWay({ key, pages: pages.slice(0, -1) }) : undefined,
    next:
      token && rows && !stale
        ? () => setWay({ key, pages: [...pages, { token, first: page.first + rows.length }] })
        : undefined,
  };
}

const START = { token: "", first: 1 };

/** The rows of a page with the way to others below them. */
export function PagedRows<T>({ paged, children }: { paged: Paged<T>; children: (rows: T[]) => ReactNode }) {
  const { t } = useTranslation();
  const { rows, first, back, next } = paged;
  return (
    <>
      <Loaded query={{ data: rows, error: paged.error, refetch: paged.refetch }} rows={8}>
        {children}
      </Loaded>
      {rows && (back || next) && (
        <nav className="yh-pager" aria-label={t("common.pages")}>
          <span className="yh-num yh-muted" data-testid="page-range">
            {t("node.range", { from: formatCount(first), to: formatCount(first + rows.length - 1) })}
          </span>
          <Button
            size="small"
            icon={<LeftOutlined aria-hidden />}
            aria-label={t("node.previous")}
            disabled={!back}
            onClick={back}
          />
          <Button
            size="small"
            icon={<RightOutlined aria-hidden />}
            aria-label={t("node.next")}
            disabled={!next}
            onClick={next}
          />
        </nav>
      )}
    </>
  );
}

/** A table of the rows of a page; empty is said where there are none. */
export function PagedTable<T extends object>({
  paged,
  empty,
  ...table
}: { paged: Paged<T>; empty: string } & Omit<TableProps<T>, "dataSource" | "loading" | "pagination" | "locale">) {
  return (
    <PagedRows paged={paged}>
      {(rows) => (
        <Table
          size="small"
          tableLayout="fixed"
          {...table}
          dataSource={rows}
          loading={paged.stale}
          pagination={false}
          locale={{ emptyText: <Nothing text={empty} /> }}
        />
      )}
    </PagedRows>
  );
}

/** A table of all rows there are. */
export function ListTable<T extends object | string>({
  empty,
  pageSize = 20,
  ...table
}: { empty?: string; pageSize?: number } & Omit<TableProps<T>, "pagination" | "locale">) {
  return (
    <Table
      size="small"
      {...table}
      pagination={{ pageSize, hideOnSinglePage: true, showSizeChanger: false, size: "small" }}
      locale={empty ? { emptyText: <Nothing text={empty} /> } : {}}
    />
  );
}
