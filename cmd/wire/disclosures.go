package wire

import (
	"time"

	"github.com/erpbackbone/backbone/application/administration"
	"github.com/erpbackbone/backbone/application/disclosure"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/ports"
)

// accessInterval is how often a node looks for hours whose accesses are not recorded in the
// administrative log yet.
const accessInterval = 5 * time.Minute

// composeDisclosures composes the record of reads that matter.
func (a *App) composeDisclosures(log *administration.Log, cursors *query.CursorSealer, clock ports.Clock, ids ports.IDSource) (err error) {
	a.disclosures, err = disclosure.New(disclosure.Config{
		Accesses: a.Store.AccessLog, Rights: a.Tenancy, Logs: log, Principals: a.Principals, Administration: log, Entities: a.Store.Directory, Cursors: cursors,
		Clock: clock, IDs: ids, Limits: disclosure.Limits{LongestGrant: a.config.Disclosure.LongestGrant},
	})
	if err != nil {
		return err
	}
	a.accesses, err = disclosure.NewRecorder(disclosure.RecorderConfig{
		Accesses: a.Store.AccessLog, Entities: a.Store.Directory, Streams: a.Store.Events, Administration: log, Clock: clock, Logger: a.logger,
		Limits: disclosure.RecorderLimits{Retention: a.config.AccessLog.Retention, Interval: accessInterval},
	})
	return err
}
