/** Command-line flags. A flag's value is a function of the texts it was given, so nothing here has state. */
import type { DraftConfig } from "./config.ts";
import type { FlagType } from "./flag-types.ts";

/** The name of a flag and its documentation. */
export interface FlagFacts {
  readonly name: string;
  readonly help: string;
  readonly shorthand?: string;
  /** The notice printed when the flag is used; the help omits such a flag. */
  readonly deprecated?: string;
  /** Whether the flag is ours and not upstream's. */
  readonly isExtension?: boolean;
}

/** A flag regardless of the type of its value: what parsing a command line and printing help need. */
export interface AnyFlag extends FlagFacts {
  readonly word: string;
  /** The text that the flag stands for without a value; `undefined` if it requires one. */
  readonly bareText: string | undefined;
  readonly defaultText: string;
  /** @returns why another text after these is rejected, or `undefined`. */
  refusal(texts: readonly string[], text: string): string | undefined;
  /** The value after these texts, as text. */
  shown(texts: readonly string[]): string;
  /** The configuration with the value of these texts in the flag's field, if it has one. */
  overlay(config: DraftConfig, texts: readonly string[]): DraftConfig;
}

export interface Flag<T> extends AnyFlag {
  /** The value after these texts, which must have passed {@link AnyFlag.refusal}. */
  read(texts: readonly string[]): T;
}

export interface FlagSpec<T> extends FlagFacts {
  readonly type: FlagType<T>;
  readonly initial: T;
  readonly overlay?: (config: DraftConfig, value: T) => DraftConfig;
}

/** Makes a flag from its declaration. */
export function flag<T>({ type, initial, overlay, ...facts }: FlagSpec<T>): Flag<T> {
  const read = (texts: readonly string[]): T => {
    let value = initial;
    for (const text of texts) {
      const next = type.read(text, value);
      if (next.ok) value = next.value;
    }
    return value;
  };
  return {
    ...facts,
    word: type.word,
    bareText: type.bareText,
    defaultText: type.format(initial),
    read,
    refusal: (texts, text) => {
      const next = type.read(text, read(texts));
      return next.ok ? undefined : next.error;
    },
    shown: (texts) => type.format(read(texts)),
    overlay: (config, texts) => overlay?.(config, read(texts)) ?? config,
  };
}

/** Makes flags for fields of one section of the configuration. @returns as {@link flag}; `sets` returns the fields of a value, given the section so far. */
export function flagsIn<Section extends keyof DraftConfig>(section: Section) {
  return <T>({
    sets,
    ...spec
  }: Omit<FlagSpec<T>, "overlay"> & {
    sets(value: T, before: DraftConfig[Section]): Partial<DraftConfig[Section]>;
  }): Flag<T> =>
    flag({
      ...spec,
      overlay: (config, value) => ({
        ...config,
        [section]: Object.assign({}, config[section], sets(value, config[section])),
      }),
    });
}
