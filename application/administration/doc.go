// Package administration keeps the administrative log of each tenant: a log of its own beside
// those of the legal entities, for what belongs to none of them: which legal entities there are,
// rights and tokens, event types, policies, requests of two persons, holds, epochs of keys,
// subscriptions, webhooks, projections, disclosures and verifications.
//
// Log appends to it. Principals answers who may call, and EventTypes which event types a tenant
// has, by folding it; Webhooks, Subscriptions and Projections record and read what persons decide
// about these. There is no table of principals: a right that no event of the log gave does not
// exist. Principals checks the chain while it reads, and refuses all callers of a tenant whose log
// does not hold together.
//
// The events are read like all others, by callers who answer for the tenant, under the legal
// entity ports.AdministrativeCode.
package administration
