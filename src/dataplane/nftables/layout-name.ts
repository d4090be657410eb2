/** The layouts of the nftables mode by name, as configuration and flags have them. Imports nothing: descriptors need it. */

/** The first is the default. */
export const LAYOUT_NAMES = ["Compatible", "Flat"] as const;

/** `Compatible`: upstream's chains and maps, name for name. `Flat`: constant rules, services are elements only. */
export type LayoutName = (typeof LAYOUT_NAMES)[number];

/** The layout of this name, in upper or lower case; undefined when there is none. Pure. */
export function layoutNameOf(text: string): LayoutName | undefined {
  return LAYOUT_NAMES.find((name) => name.toLowerCase() === text.toLowerCase());
}
