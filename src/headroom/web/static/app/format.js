// Numbers and times as people read them. What is exact stays exact: it is kept in the title of what shows it.

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const grouped = new Map();

function rounded(value, digits) {
  if (!grouped.has(digits)) grouped.set(digits, new Intl.NumberFormat("en", { maximumFractionDigits: digits }));
  return grouped.get(digits).format(value);
}

/** A number with as many digits as say something: 0.042, 8.31, 83.1, 831, 8,310. */
export function number(text) {
  const value = Number(text);
  if (!Number.isFinite(value)) return String(text);
  const size = Math.abs(value);
  return rounded(value, size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 3);
}

export function dollars(text) {
  const value = Number(text);
  if (!Number.isFinite(value)) return String(text);
  return `$${Math.abs(value) >= 1000 ? rounded(value, 0) : value.toFixed(2)}`;
}

/** Of a share. What is not yet used up never reads as 100 %. */
export function percent(value) {
  if (value === undefined) return "";
  if (value > 0 && value < 1) return "<1 %";
  return `${value < 100 ? Math.min(Math.round(value), 99) : Math.round(value)} %`;
}

/** "1 pod", "3 pods". */
export function count(amount, one, many = `${one}s`) {
  return `${number(amount)} ${Number(amount) === 1 ? one : many}`;
}

/** The two largest units of a time span: "3 d 4 h", "2 h 5 min", "12 min", "40 s". */
export function span(milliseconds) {
  const size = Math.abs(milliseconds);
  if (size < MINUTE) return `${Math.round(size / SECOND)} s`;
  if (size < HOUR) return `${Math.floor(size / MINUTE)} min`;
  const [large, small, names] = size < DAY ? [HOUR, MINUTE, ["h", "min"]] : [DAY, HOUR, ["d", "h"]];
  const rest = Math.floor((size % large) / small);
  return `${Math.floor(size / large)} ${names[0]}${rest ? ` ${rest} ${names[1]}` : ""}`;
}

/** A window, in the unit people set it in: "24 h", "7 d". */
export function window(hours) {
  return hours > 48 && hours % 24 === 0 ? `${hours / 24} d` : `${hours} h`;
}

/** "in 2 h 5 min", "12 min ago", "now". */
export function distance(moment, now) {
  const apart = moment - now;
  if (Math.abs(apart) < SECOND) return "now";
  return apart > 0 ? `in ${span(apart)}` : `${span(apart)} ago`;
}

/** Of a forecast: one whose moment has come is due, not past. */
export function ahead(moment, now) {
  return moment - now < SECOND ? "any moment now" : distance(moment, now);
}

const dayAndTime = new Intl.DateTimeFormat("en-GB", { weekday: "short", hour: "2-digit", minute: "2-digit" });
const dateAndTime = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
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

/** "a, b and 3 more". */
export function listed(names, most = 3) {
  if (names.length <= most) return names.join(", ");
  return `${names.slice(0, most).join(", ")} and ${names.length - most} more`;
}
