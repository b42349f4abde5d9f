/** The token of this tab and its role. The token is kept in sessionStorage only, so it ends with the tab. */

export type Role = 'none' | 'viewer' | 'operator' | 'admin';

const KEY = 'forebay-token';
const RANK: Record<Role, number> = { none: 0, viewer: 1, operator: 2, admin: 3 };

class Access {
    token = $state('');
    role = $state<Role>('none');
    /** Why the token is not used, if it was refused. */
    trouble = $state('');

    constructor() {
        if (!this.takeFromAddress()) this.token = sessionStorage.getItem(KEY) ?? '';
    }

    /** Takes the token of the address, if it has one: `#token=…`. */
    takeFromAddress(): boolean {
        const token = /^#token=([\w-]+)$/.exec(location.hash)?.[1];
        if (!token) return false;
        // A token in the address would stay in the history of the browser, and in copies of the address.
        history.replaceState(null, '', `${location.pathname}${location.search}#/`);
        this.set(token);
        return true;
    }

    set(token: string): void {
        this.token = token.trim();
        this.role = 'none';
        this.trouble = '';
        if (this.token) sessionStorage.setItem(KEY, this.token);
        else sessionStorage.removeItem(KEY);
    }

    /** Returns whether the role allows what `role` allows. */
    is(role: Role): boolean {
        return RANK[this.role] >= RANK[role];
    }

    /** Returns why a control that needs `role` cannot be used, or an empty text. */
    reason(role: Role): string {
        if (this.is(role)) return '';
        let own = `This token has the role ${this.role}.`;
        if (!this.token) own = 'This tab has no token.';
        else if (this.role === 'none') own = 'The server has not accepted the token.';
        return `${own} This needs a token with the role ${role}: \`forebay token NAME --role ${role}\`.`;
    }
}

export const access = new Access();
