package wire

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/adapters/exportdir"
	"github.com/erpbackbone/backbone/adapters/s3"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// openObjectStore opens the store of a section of the configuration; nil if none is configured. It need not be reachable
// now. A bucket keeps objects for as long as lock from deletion. Faults: config.store_ambiguous, those of the store.
func openObjectStore(ctx context.Context, section string, c configs.ObjectStore, lock time.Duration) (ports.ExportStore, error) {
	switch {
	case c.Directory != "" && c.Bucket != "":
		return nil, fault.New(fault.Invalid, "config.store_ambiguous", "set either a folder or a bucket: %s.directory or %s.bucket, not both", section, section)
	case c.Directory != "":
		return exportdir.At(c.Directory)
	case c.Bucket != "":
		return s3.New(ctx, s3.Options{
			Endpoint: c.Endpoint, Region: c.Region, Bucket: c.Bucket, Prefix: c.Prefix, CredentialsFile: c.CredentialsFile, Profile: c.Profile,
			Limits: s3.Limits{Timeout: c.Timeout, Tries: c.Tries, Backoff: c.Backoff}, Lock: lock,
		})
	default:
		return nil, nil
	}
}
