// Language and theme: chosen in the header, kept in this browser, at first as
// the browser asks for.
import { createContext, type ReactNode, use, useEffect, useMemo, useState } from "react";
import i18n, { type Language } from "./i18n";

export type ThemeName = "light" | "dark";

export interface Prefs {
  language: Language;
  theme: ThemeName;
  setLanguage: (language: Language) => void;
  setTheme: (theme: ThemeName) => void;
}

const LANGUAGE_KEY = "yunhe.language";
const THEME_KEY = "yunhe.theme";

/** The language to begin with. */
export function initialLanguage(stored: string | null, wanted: readonly string[]): Language {
  if (stored === "zh" || stored === "en") return stored;
  return wanted[0]?.toLowerCase().startsWith("zh") ? "zh" : "en";
}

function initialTheme(): ThemeName {
  const stored = localStorage.getItem(THEME_KEY);
  if (stored === "light" || stored === "dark") return stored;
  return window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

const PrefsContext = createContext<Prefs | undefined>(undefined);

export function usePrefs(): Prefs {
  const prefs = use(PrefsContext);
  if (!prefs) throw new Error("usePrefs outside PrefsProvider");
  return prefs;
}

export function PrefsProvider({ children }: { children: ReactNode }) {
  const [language, setLanguage] = useState<Language>(() =>
    initialLanguage(localStorage.getItem(LANGUAGE_KEY), navigator.languages),
  );
  const [theme, setTheme] = useState<ThemeName>(initialTheme);

  useEffect(() => {
    void i18n.changeLanguage(language);
    document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  }, [language]);
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    document.documentElement.style.colorScheme = theme;
  }, [theme]);

  const prefs = useMemo<Prefs>(
    () => ({
      language,
      theme,
      setLanguage: (next) => {
        localStorage.setItem(LANGUAGE_KEY, next);
        setLanguage(next);
      },
      setTheme: (next) => {
        localStorage.setItem(THEME_KEY, next);
        setTheme(next);
      },
    }),
    [language, theme],
  );
  return <PrefsContext value={prefs}>{children}</PrefsContext>;
}
