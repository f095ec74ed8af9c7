// Numbers and times as people read them. What is exact stays exact: it is kept in the title of what shows it.

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const grouped = new Map();

function rounded(value, digits, least = 0) {
  const key = `${least}-${digits}`;
  if (!grouped.has(key)) grouped.set(key, new Intl.NumberFormat("en", { minimumFractionDigits: least, maximumFractionDigits: digits }));
  return grouped.get(key).format(value);
}

function digitsOf(value) {
  const size = Math.abs(value);
  return size >= 1000 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : 3;
}

/** A number with as many digits as say something: 0.042, 8.31, 83.1, 831.5, 8,310. */
export function number(text) {
  const value = Number(text);
  if (!Number.isFinite(value)) return String(text);
  return rounded(value, digitsOf(value));
}

/** What is left of a quota: below 10 with two decimals, like what is used of it. */
export function left(text) {
  const value = Number(text);
  return value > 0 && value < 0.01 ? "<0.01" : value < 0.1 ? rounded(value, 2) : number(text);
}

/** The numbers of one column, all with as many digits as the largest of them needs. */
export function column(texts) {
  const values = texts.map(Number);
  const digits = values.every(Number.isInteger) ? 0 : digitsOf(Math.max(...values.map(Math.abs)));
  return values.map((value, index) => (Number.isFinite(value) ? rounded(value, digits, digits) : String(texts[index])));
}

/** Always with cents, so that amounts below each other can be compared. */
export function dollars(text) {
  const value = Number(text);
  return Number.isFinite(value) ? money(value, 2) : String(text);
}

function money(value, digits) {
  return `${value < 0 ? "-" : ""}$${rounded(Math.abs(value), digits, 2)}`;
}

/** One value in the unit of a chart. */
export function amount(value, unit) {
  return unit === "dollars" ? dollars(value) : number(value);
}

/** What was used, and the quota. Two amounts that differ never read the same: 239.96 of 240. */
export function usedOf(used, quota, unit) {
  const [one, other] = [Number(used), Number(quota)];
  const words = [amount(used, unit), amount(quota, unit)];
  for (let digits = 1; words[0] === words[1] && one !== other && digits <= 6; digits += 1) {
    words[0] = unit === "dollars" ? money(one, digits + 2) : rounded(one, digits);
  }
  return words;
}

/** Of a share. Near the quota it has a decimal, rounded down: what is below the quota never reads as 100%. */
export function percent(value) {
  if (value === undefined) return "";
  if (value > 0 && value < 1) return "<1%";
  if (value <= 95 || value >= 105) return `${Math.round(value)}%`;
  return `${Math.floor(value * 10) / 10}%`;
}

/** "1 pod", "3 pods". */
export function count(amount, one, many = `${one}s`) {
  return `${number(amount)} ${Number(amount) === 1 ? one : many}`;
}

/** The two largest units of a time span: "3d 4h", "2h 5m", "12m", "40s". */
export function span(milliseconds) {
  const size = Math.abs(milliseconds);
  if (size < MINUTE) return `${Math.round(size / SECOND)}s`;
  if (size < HOUR) return `${Math.floor(size / MINUTE)}m`;
  const [large, small, names] = size < DAY ? [HOUR, MINUTE, ["h", "m"]] : [DAY, HOUR, ["d", "h"]];
  const rest = Math.floor((size % large) / small);
  return `${Math.floor(size / large)}${names[0]}${rest ? ` ${rest}${names[1]}` : ""}`;
}

/** A window, in the unit people set it in: "24h", "7d". */
export function window(hours) {
  return hours > 48 && hours % 24 === 0 ? `${hours / 24}d` : `${hours}h`;
}

/** "in 2h 5m", "12m ago", "now". */
export function distance(moment, now) {
  const apart = moment - now;
  if (Math.abs(apart) < SECOND) return "now";
  return apart > 0 ? `in ${span(apart)}` : `${span(apart)} ago`;
}

/** How long something has lasted: "12m". */
export function lasting(moment, now) {
  return span(Math.max(0, now - moment));
}

/** Of a forecast: one whose moment has come is due, not past. */
export function ahead(moment, now) {
  return moment - now < SECOND ? "any moment now" : distance(moment, now);
}

const dayAndTime = new Intl.DateTimeFormat("en-GB", { weekday: "short", hour: "2-digit", minute: "2-digit" });
const dateAndTime = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const dayOnly = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short" });
const timeOnly = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const whole = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });

/** The time of day, with seconds. */
export function clock(milliseconds) {
  return timeOnly.format(milliseconds);
}

/** Weekday and time; the date instead of the weekday where it is not of this week. */
export function moment(milliseconds, now = milliseconds) {
  return (Math.abs(milliseconds - now) < 6 * DAY ? dayAndTime : dateAndTime).format(milliseconds).replace(",", "");
}

/** All of it, for a title: in the reader's zone and as the cluster says it. */
export function exactly(milliseconds) {
  const cluster = new Date(milliseconds).toISOString().replace(/\.\d+Z$/, "Z");
  return `${whole.format(milliseconds)} (${cluster})`;
}

/** The day, as a heading of what happened then: "Today", "Yesterday", "Tue 3 Nov". */
export function day(milliseconds, now) {
  const begin = (moment) => new Date(moment).setHours(0, 0, 0, 0);
  const ago = Math.round((begin(now) - begin(milliseconds)) / DAY);
  return ago === 0 ? "Today" : ago === 1 ? "Yesterday" : dayOnly.format(milliseconds).replace(",", "");
}

/** "a, b and 3 more". */
export function listed(names, most = 3) {
  if (names.length <= most) return names.join(", ");
  return `${names.slice(0, most).join(", ")} and ${names.length - most} more`;
}
