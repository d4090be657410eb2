/** Paged lists: a consistent snapshot of one version, with continue tokens that tests can expire. */
import type { ObjectStore, StoredVersion } from "./object-store.ts";
import type { Plural } from "./resource-types.ts";
import type { Predicate } from "./selectors.ts";
import type { StatusOptions } from "./status-object.ts";

export interface ListPage {
  readonly version: number;
  readonly items: readonly StoredVersion[];
  /** Token of the next page; empty for the last page. */
  readonly next: string;
}

interface Rest {
  readonly version: number;
  readonly items: readonly StoredVersion[];
}

export class ListPages {
  readonly #store: ObjectStore;
  readonly #rests = new Map<string, Rest>();
  #count = 0;
  /** Replaces the JSON of each sent item. */
  mangle: (json: string) => string = (json) => json;
  /** Lists ignore selectors and contain everything. */
  ignoresSelectors = false;

  constructor(store: ObjectStore) {
    this.#store = store;
  }

  /** The first page (empty token) or a later one; 410 if the token has expired. */
  page(plural: Plural, isSelected: Predicate, limit: number, token: string): ListPage | StatusOptions {
    const rest = token === "" ? this.#snapshot(plural, isSelected) : this.#rests.get(token);
    if (rest === undefined) {
      const message = "The provided continue parameter is too old to display a consistent list result.";
      return { code: 410, reason: "Expired", message };
    }
    const size = limit > 0 ? limit : rest.items.length;
    const items = rest.items.slice(0, size);
    if (size >= rest.items.length) return { version: rest.version, items, next: "" };
    const next = `page-${++this.#count}`;
    this.#rests.set(next, { version: rest.version, items: rest.items.slice(size) });
    return { version: rest.version, items, next };
  }

  /** Expires all tokens issued so far. */
  expireTokens(): void {
    this.#rests.clear();
  }

  #snapshot(plural: Plural, isSelected: Predicate): Rest {
    const items: StoredVersion[] = [];
    for (const version of this.#store.objects(plural).values()) {
      if (!this.ignoresSelectors && !isSelected(version.object)) continue;
      const json = this.mangle(version.json);
      items.push(json === version.json ? version : { object: JSON.parse(json), json });
    }
    return { version: this.#store.version, items };
  }
}
