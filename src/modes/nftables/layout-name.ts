/** The layout names of the nftables mode in configuration and flags. Imports nothing, because descriptors load it. */

/** The first is the default. */
export const LAYOUT_NAMES = ["Compatible", "Flat"] as const;

/** `Compatible`: upstream's chains and maps, name for name. `Flat`: constant rules, Services are only elements. */
export type LayoutName = (typeof LAYOUT_NAMES)[number];

/** The layout of this name, in any case; undefined if there is none. */
export function layoutNameOf(text: string): LayoutName | undefined {
  return LAYOUT_NAMES.find((name) => name.toLowerCase() === text.toLowerCase());
}
