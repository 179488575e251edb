package wire

import (
	"context"

	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/application/verify/jobs"
	"github.com/erpbackbone/backbone/ports"
)

// SettleSeconds is how long a difference between a row and its event may last that this server, or
// another one, is about to write.
const SettleSeconds = 5

// composeVerifications composes the verification of logs as jobs of this node.
func (a *App) composeVerifications(ctx context.Context, clock ports.Clock, ids ports.IDSource) error {
	installation, err := a.Store.Directory.Installation(ctx)
	if err != nil {
		return err
	}
	a.verifications = jobs.New(jobs.Config{
		Log: a.administration, Events: a.Store.Events, Leases: a.Store.Leases, LogName: installation.LogName, Node: a.config.Node.ID, Clock: clock, IDs: ids, Logger: a.logger,
		Check: func(ctx context.Context, tenantID, code string, progress verify.Progress, options ...verify.Option) ([]verify.EntityReport, error) {
			return verify.Run(ctx, a.Store.Chains(), tenantID, []string{code}, progress, append(options, verify.Settle(SettleSeconds))...)
		},
		Registries: func(ctx context.Context, options ...verify.Option) ([]verify.RegistryReport, error) {
			return verify.Registries(ctx, a.Store.Registry, options...)
		},
	})
	return nil
}
