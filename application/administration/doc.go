// Package administration keeps the administrative log of each tenant: a log of its own beside
// those of the legal entities, for what belongs to none of them. It records who was given which
// rights and tokens, and which legal entities there are.
//
// Log appends to it; Principals answers who may call, by folding it. There is no table of
// principals: a right that no event of the log gave does not exist. Principals checks the chain
// while it reads, and refuses all callers of a tenant whose log does not hold together.
//
// The events are read like all others, by callers who answer for the tenant, under the legal
// entity ports.AdministrativeCode.
package administration
