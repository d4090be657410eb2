/** An emulated machine: `npm test -- FILE` installs what is missing if the file reaches this module (scripts/test-needs.mjs). */
export {};
