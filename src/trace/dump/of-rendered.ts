/** What `render` makes of a plan, as a dump. Pure. */
import type { TracedTables } from "../iptables/rule-index.ts";
import { type Dump, recogniseDump } from "./recognise.ts";

/** One family's part of a form of `render`, in the shape that renderers give it. */
type RenderedPlan =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "items"; readonly items: readonly unknown[] }
  | { readonly kind: "tables"; readonly tables: TracedTables }
  | { readonly kind: "dump"; readonly dump: Dump }
  | { readonly kind: "data" };

/** @param form its name, for errors. @returns undefined when nothing is planned. @throws DumpError */
function dumpOf(rendered: RenderedPlan, form: string): Dump | undefined {
  switch (rendered.kind) {
    case "items":
      return { kind: "nftables", objects: rendered.items };
    case "tables":
      return { kind: "iptables-tables", tables: rendered.tables };
    case "text":
      return rendered.text === "" ? undefined : recogniseDump(rendered.text, form);
    case "dump":
      return rendered.dump;
    case "data":
      return undefined;
  }
}

/**
 * A plan in each of these forms.
 *
 * @param render plans in one form.
 * @returns those in which anything is planned. @throws DumpError, and what `render` throws
 */
export async function dumpsOf(
  forms: readonly string[],
  render: (form: string) => Promise<RenderedPlan>,
): Promise<Dump[]> {
  const dumps: Dump[] = [];
  for (const form of forms) {
    const dump = dumpOf(await render(form), form);
    if (dump !== undefined) dumps.push(dump);
  }
  return dumps;
}
