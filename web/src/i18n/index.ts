// Texts in English and Chinese. en.ts is the list of keys; zh.ts must have the
// same, or the build fails.
import i18n from "i18next";
import { initReactI18next } from "react-i18next";
import { en } from "./en";
import { zh } from "./zh";

export type Language = "en" | "zh";

declare module "i18next" {
  interface CustomTypeOptions {
    defaultNS: "translation";
    resources: { translation: typeof en };
  }
}

void i18n.use(initReactI18next).init({
  lng: "en",
  fallbackLng: "en",
  resources: { en: { translation: en }, zh: { translation: zh } },
  interpolation: { escapeValue: false },
  initAsync: false,
});

export default i18n;
