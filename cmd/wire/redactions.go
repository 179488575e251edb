package wire

import (
	"cmp"
	"context"

	"github.com/erpbackbone/backbone/application/redaction"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/ports"
)

// redactorDSN returns the address of the log's database as the eraser's role, "" if it is not
// configured. An address of the key store is one of the log where they share a database.
func redactorDSN(c configs.Config) string {
	dsn := c.Database.EraserDSN.Reveal()
	if c.KeyStore.DSN == "" {
		dsn = cmp.Or(dsn, c.KeyStore.EraserDSN.Reveal())
	}
	return dsn
}

// addRedactions composes the redaction worker and its service from the parts of the App.
// Without the eraser's address there are none.
func (p *personal) addRedactions(ctx context.Context, a *App, redactions ports.Redactions, journal ports.AdministrativeLog, clock ports.Clock, ids ports.IDSource) (err error) {
	if redactions == nil {
		return nil
	}
	config := redaction.Config{
		Journal: journal, Redactions: redactions, Events: a.Store.Events, Rules: redaction.Rules{Types: a.Registry, Declared: a.Catalog, Upcaster: a.Upcaster},
		LegalEntities: a.Store.Directory, ReadModels: a.targets, Announcer: announcer{a.appends, redactionActor, "redaction"}, Chains: chains{a.Store.Chains},
		Notes: p.signer, Exports: p.Exports, Clock: clock, IDs: ids, Logger: a.logger, Poll: a.config.Erasure.Poll,
	}
	if a.config.Archive.IsConfigured() {
		archiver, err := a.Archiver(ctx)
		if err != nil {
			return err
		}
		config.Archive = archiver
	}
	if p.redactionWorker, err = redaction.NewWorker(config); err != nil {
		return err
	}
	p.redactions, err = redaction.NewService(config, p.redactionWorker.Wake)
	return err
}
