package wire

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/application/verify/jobs"
	"github.com/erpbackbone/backbone/ports"
)

// SettleSeconds is how long a difference between a row and its event may last that this server, or
// another one, is about to write.
const SettleSeconds = 5

// OfferVerifications lets this node verify logs as jobs.
func (a *App) OfferVerifications(ctx context.Context) error {
	installation, err := a.Store.Directory.Installation(ctx)
	if err != nil {
		return err
	}
	always := []verify.Option{verify.Settle(SettleSeconds), verify.DecidesBy(policyDigest(a.Catalog))}
	compareErased := func(context.Context, string) (string, bool, error) { return "", false, nil }
	var dataKeys ports.DataKeys
	if p := a.personal; p != nil {
		keys := &KeyStoreAudit{ErasureRegister: p.Erasures, KEKStore: p.KEKs, DataKeys: p.DataKeys, store: p.Store, erasures: a.config.Erasure}
		always = append(always, verify.WithKeyStore(keys))
		dataKeys, compareErased = keys.DataKeys, keys.CompareErased
	}
	a.verifications = jobs.New(jobs.Config{
		Log: a.administration, Events: a.Store.Events, Leases: a.Store.Leases, LogName: installation.LogName, Node: a.config.Node.ID, Clock: a.clock, IDs: a.ids, Logger: a.logger,
		Check: func(ctx context.Context, tenantID string, codes []string, progress verify.Progress, take func(*verify.EntityReport) error, options ...verify.Option) error {
			_, err := verify.Run(ctx, a.Store.Chains, tenantID, codes, progress, slices.Concat(options, always, []verify.Option{verify.Each(take)})...)
			return err
		},
		CompareErased: compareErased, DataKeys: dataKeys,
		Registries: func(ctx context.Context, tenantID string, options ...verify.Option) ([]verify.RegistryReport, error) {
			return verify.Registries(ctx, a.Store.Registry, tenantID, options...)
		},
	})
	return nil
}
