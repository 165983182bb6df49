import { useRef } from "react";
import { newRequestId } from "../api";

/** The request ID of a body: of one sent again after an answer that was lost, the same. */
export function useRequestId(): { of: (body: unknown) => string; done: () => void } {
  const last = useRef({ body: "", id: "" });
  return {
    of: (body) => {
      const text = JSON.stringify(body, (_, x: unknown) => (typeof x === "bigint" ? x.toString() : x));
      if (last.current.body !== text) last.current = { body: text, id: newRequestId() };
      return last.current.id;
    },
    /** It was answered: the same asked for again is another. */
    done: () => {
      last.current = { body: "", id: "" };
    },
  };
}
