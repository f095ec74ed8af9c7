// One colour for each team, which is a namespace, on all pages: by its name, so that it is the same tomorrow.

const HUES = 8;
const taken = new Map();

/** The colour of a namespace. Where another one seen before has it by its name, it gets the next that is left; the first eight all differ. */
export function hue(namespace) {
  if (!taken.has(namespace)) {
    const free = taken.size < HUES ? new Set(Array.from({ length: HUES }, (_, number) => number)) : new Set();
    for (const each of taken.values()) free.delete(each);
    let found = digest(namespace);
    while (free.size && !free.has(found)) found = (found + 1) % HUES;
    taken.set(namespace, found);
  }
  return taken.get(namespace);
}

function digest(name) {
  let sum = 0;
  for (const letter of name) sum = (31 * sum + letter.codePointAt(0)) % 65_521;
  return sum % HUES;
}
