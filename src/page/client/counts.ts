/** What the kernel had counted when it was asked last: kept while the rest of the view goes on. */
import type { Picture, PortExplanation, ServiceAnswer } from "../answers.ts";

export interface Counted {
  readonly open: number | null;
  readonly counted: number | null;
}

export class Counts {
  readonly #known = new Map<string, Counted>();
  /** Undefined before the first time. */
  time: Date | undefined;
  notes: readonly string[] = [];

  take({ families }: ServiceAnswer): void {
    this.#known.clear();
    this.time = new Date();
    this.notes = [...new Set(families.flatMap(({ explanation }) => explanation.trafficNotes ?? []))];
    for (const { explanation } of families) {
      const { family, frontends, endpoints } = explanation;
      for (const one of frontends) this.#note(`${family} frontend ${one.address ?? ""} ${one.port}`, one);
      for (const one of endpoints) this.#note(`${family} endpoint ${one.address}`, one);
    }
  }

  ofFrontend(family: string, { address, port }: { readonly address: string | null; readonly port: number }) {
    return this.#known.get(`${family} frontend ${address ?? ""} ${port}`);
  }

  ofEndpoint(family: string, address: string): Counted | undefined {
    return this.#known.get(`${family} endpoint ${address}`);
  }

  #note(key: string, { open = null, counted = null }: { open?: number | null; counted?: number | null }): void {
    this.#known.set(key, { open, counted });
  }
}

/** The picture of a service port with what was counted in its boxes, whose ids end in `f` or `e` and a number. */
export function withCounts(
  picture: Picture,
  { family, frontends, endpoints }: PortExplanation,
  counts: Counts,
): Picture {
  const boxes = picture.boxes.map((box) => {
    const [, kind, number] = /([fe])(\d+)$/.exec(box.id) ?? [];
    const frontend = kind === "f" ? frontends[Number(number)] : undefined;
    const endpoint = kind === "e" ? endpoints[Number(number)] : undefined;
    const text = countedText(
      (frontend && counts.ofFrontend(family, frontend)) ?? (endpoint && counts.ofEndpoint(family, endpoint.address)),
    );
    return text === "" ? box : { ...box, note: [box.note, text].filter((part) => part !== "").join(", ") };
  });
  return { ...picture, boxes };
}

/** `12 open, 300 counted`; empty where nothing is known. */
export function countedText(counts: Counted | undefined): string {
  if (counts === undefined) return "";
  const { open, counted } = counts;
  return [open === null ? "" : `${open} open`, counted === null ? "" : `${counted} counted`]
    .filter((text) => text !== "")
    .join(", ");
}
