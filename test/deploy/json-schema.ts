/** Checks a value against the part of JSON Schema that the chart's schema of values uses; any other keyword throws. */

export interface Schema {
  readonly type?: string | readonly string[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: boolean | Schema;
  readonly required?: readonly string[];
  readonly items?: Schema;
  readonly enum?: readonly unknown[];
  readonly pattern?: string;
}

const KEYWORDS = [
  "$schema",
  "title",
  "type",
  "properties",
  "additionalProperties",
  "required",
  "items",
  "enum",
  "pattern",
];

function typeOf(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "array" : typeof value;
}

/** @returns what is wrong, each with its path; empty when nothing is. Pure. */
export function schemaFaults(schema: Schema, value: unknown, path = "values"): readonly string[] {
  const unknown = Object.keys(schema).filter((keyword) => !KEYWORDS.includes(keyword));
  if (unknown.length > 0) throw new Error(`the schema of ${path} uses ${unknown.join(", ")}`);
  const { type, properties = {}, additionalProperties = true, required = [], items } = schema;
  const types = typeof type === "string" ? [type] : type;
  if (types !== undefined && !types.includes(typeOf(value))) return [`${path}: must be ${types.join(" or ")}`];
  const faults: string[] = [];
  if (schema.enum !== undefined && !schema.enum.includes(value))
    faults.push(`${path}: must be one of ${schema.enum.join(", ")}`);
  if (schema.pattern !== undefined && typeof value === "string" && !new RegExp(schema.pattern).test(value)) {
    faults.push(`${path}: must match ${schema.pattern}`);
  }
  if (Array.isArray(value) && items !== undefined) {
    faults.push(...value.flatMap((item, index) => schemaFaults(items, item, `${path}[${index}]`)));
  }
  if (typeOf(value) !== "object") return faults;
  const entries = Object.entries(Object(value));
  for (const name of required) if (!entries.some(([key]) => key === name)) faults.push(`${path}.${name}: is required`);
  for (const [key, member] of entries) {
    const own = properties[key] ?? additionalProperties;
    if (own === false) faults.push(`${path}.${key}: is not a value of this chart`);
    else if (own !== true) faults.push(...schemaFaults(own, member, `${path}.${key}`));
  }
  return faults;
}
