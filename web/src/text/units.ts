/** Numbers with their units. A value that does not exist is "–". */

export const MISSING = '–';

function isMissing(value: number | null | undefined): value is null | undefined {
    return value === null || value === undefined || Number.isNaN(value);
}

function shorten(value: number): string {
    if (value >= 1e4) return count(value);
    const digits = value >= 100 || value === 0 ? 0 : value >= 10 ? 1 : 2;
    return value.toFixed(digits);
}

/** Returns a value in the largest unit of which it has one. The smallest unit is the last one. */
function scaled(value: number, units: [number, string][]): string {
    const [factor, unit] = units.find(([one]) => value >= one) ?? units.at(-1) ?? [1, ''];
    return `${shorten(value / factor)} ${unit}`;
}

/** Returns a rate in packets per second: `1.25 Mpps`. */
export function rate(pps: number | null | undefined): string {
    if (isMissing(pps)) return MISSING;
    return scaled(pps, [[1e9, 'Gpps'], [1e6, 'Mpps'], [1e3, 'kpps'], [1, 'pps']]);
}

/** Returns a time that is given in microseconds: `80 µs`, `1.2 ms`. */
export function delay(us: number | null | undefined): string {
    if (isMissing(us)) return MISSING;
    return us === 0 ? '0 µs' : scaled(us, [[1e6, 's'], [1e3, 'ms'], [1, 'µs'], [1e-3, 'ns']]);
}

/** Returns a share as a percentage. */
export function share(value: number | null | undefined): string {
    return isMissing(value) ? MISSING : `${(value * 100).toFixed(value < 0.1 && value > 0 ? 1 : 0)} %`;
}

/** Returns a size in bytes: `32.0 MiB`. */
export function bytes(value: number): string {
    return scaled(value, [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB'], [1, 'B']]);
}

/** Returns a count with thin spaces between thousands. */
export function count(value: number | null | undefined): string {
    return isMissing(value) ? MISSING : Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, '\u202f');
}

/** Returns a number with at most two decimals. */
export function decimal(value: number | null | undefined): string {
    return isMissing(value) ? MISSING : shorten(value);
}

const two = (value: number) => String(value).padStart(2, '0');

/** Returns the time of day, with the date if it is not today. The time is given in milliseconds since 1970. */
export function clock(ms: number): string {
    const date = new Date(ms);
    const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
    const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
    return date.toDateString() === new Date().toDateString() ? time : `${day} ${time}`;
}

/** Returns a name of the API as words: `objective_missed` becomes `objective missed`. */
export function words(name: string): string {
    return name.replaceAll('_', ' ');
}
