/** An answer of `explain` in each form that it has. */
import type { PortExplanation } from "./explanation.ts";
import { mermaidText } from "./mermaid.ts";
import { pictureOf } from "./picture.ts";
import { jsonText, safe } from "./safe-text.ts";
import { svgText } from "./svg.ts";
import { explanationText } from "./text.ts";

export const FORMS = ["text", "json", "yaml", "mermaid", "svg"] as const;
export type Form = (typeof FORMS)[number];

export interface Answer {
  /** What was asked, as it was typed. */
  readonly what: string;
  /** How that belongs to the service ports. */
  readonly because: readonly string[];
  readonly servicePorts: readonly PortExplanation[];
}

/** @param width of the terminal that text is for, in characters. @default no limit */
export async function answerText(form: Form, answer: Answer, width?: number): Promise<string> {
  const pictures = () => answer.servicePorts.map((one, index) => pictureOf(one, `p${index}`));
  switch (form) {
    case "text": {
      const head = safe(answer.because.map((sentence) => `${sentence}\n`).join(""));
      const explanations = answer.servicePorts.map((one) => explanationText(one, width));
      return [head, ...explanations].filter((part) => part !== "").join("\n");
    }
    case "json":
      return jsonText(answer);
    case "yaml": {
      // The library costs start-up time: it is loaded for those who ask for it. JSON's escapes keep the text safe.
      const { stringify } = await import("yaml");
      return safe(stringify(answer, { aliasDuplicateObjects: false }));
    }
    case "mermaid":
      return mermaidText(pictures());
    case "svg":
      return svgText(pictures());
  }
}
