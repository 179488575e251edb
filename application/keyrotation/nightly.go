package keyrotation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// The nightly job.
const (
	nightlyFolder   = "nightly/"
	claimRetention  = 30 * 24 * time.Hour
	claimTimeout    = time.Hour // after it another node may claim an unfinished night
	nightlyInterval = time.Minute
)

// Nightly says when the job runs.
type Nightly struct {
	At         time.Duration // after midnight UTC
	MaximumAge time.Duration // of a KEK whose tenant has no new erasures; 0: no limit
}

// RunNightly rotates every night until ctx ends. Of several nodes, the one that claims the
// night first in the export store does the work. RunNightly passes failures to onError and
// calls Night again in the next interval.
func (s *Service) RunNightly(ctx context.Context, n Nightly, onError func(error)) {
	tick := time.NewTicker(nightlyInterval)
	defer tick.Stop()
	for {
		if err := s.Night(ctx, n); err != nil {
			onError(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Night rotates the KEKs of the tenants that are due, for the night that began last, unless
// this or another node has finished that night or is working on it.
func (s *Service) Night(ctx context.Context, n Nightly) error {
	now := s.c.Clock.Now().UTC()
	night := now.Truncate(24 * time.Hour).Add(n.At)
	if now.Before(night) {
		night = night.Add(-24 * time.Hour)
	}
	if err := s.c.Gate(ctx); err != nil {
		return err
	}
	folder := nightlyFolder + night.Format(time.DateOnly) + "/"
	claimed, err := s.claimNight(ctx, folder, now)
	if err != nil || !claimed {
		return err
	}
	due, err := s.Due(ctx, n.MaximumAge)
	if err != nil {
		return err
	}
	var failures []error
	for _, tenantID := range due {
		began := s.c.Clock.Now()
		out, err := s.Rotate(ctx, tenantID, nil)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		s.c.Logger.InfoContext(ctx, "keys rotated", "tenant", tenantID, "ended_epoch", out.Ended, "active_epoch", out.Active, "rewrapped", out.Rewrapped,
			"covers_receipts_to", out.Covers, "elapsed", s.c.Clock.Now().Sub(began))
	}
	if err := errors.Join(append(failures, s.deleteAllKEKs(ctx))...); err != nil {
		return err
	}
	if err := s.c.Exports.PutIfAbsent(ctx, folder+"done", []byte("done\n")); err != nil {
		return err
	}
	return s.deleteOldClaims(ctx, now)
}

// deleteAllKEKs continues the deletions of KEKs of all tenants.
func (s *Service) deleteAllKEKs(ctx context.Context) error {
	keks, err := s.c.Keys.KEKs(ctx, "")
	if err != nil {
		return err
	}
	var failures []error
	for _, tenantID := range tenantsOf(keks) {
		failures = append(failures, s.deleteKEKs(ctx, tenantID))
	}
	return errors.Join(failures...)
}

type claim struct {
	Node string    `json:"node"`
	At   time.Time `json:"at"`
}

// claimNight claims the night for this node unless another node has finished it, or
// claimed it within the last claimTimeout. PutIfAbsent decides races.
func (s *Service) claimNight(ctx context.Context, folder string, now time.Time) (bool, error) {
	names, err := s.c.Exports.List(ctx, folder)
	if err != nil {
		return false, err
	}
	attempts := len(names)
	if slices.Contains(names, folder+"done") {
		return false, nil
	}
	if attempts > 0 {
		content, err := s.c.Exports.Get(ctx, fmt.Sprintf("%sattempt-%04d", folder, attempts))
		if err != nil {
			return false, err
		}
		var last claim
		if err := json.Unmarshal(content, &last); err == nil && now.Sub(last.At) < claimTimeout {
			return false, nil
		}
	}
	content, err := json.Marshal(claim{Node: s.c.Node, At: now})
	if err != nil {
		return false, err
	}
	err = s.c.Exports.PutIfAbsent(ctx, fmt.Sprintf("%sattempt-%04d", folder, attempts+1), content)
	if fault.CodeOf(err) == "export.name_taken" {
		return false, nil
	}
	return err == nil, err
}

// deleteOldClaims deletes the documents of nights older than claimRetention.
func (s *Service) deleteOldClaims(ctx context.Context, now time.Time) error {
	names, err := s.c.Exports.List(ctx, nightlyFolder)
	if err != nil {
		return err
	}
	oldest := nightlyFolder + now.Add(-claimRetention).Format(time.DateOnly)
	for _, name := range names {
		if name < oldest {
			if err := s.c.Exports.Delete(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// Due lists the tenants that need a rotation: an earlier run began one, a person was erased
// since the active KEK was activated, or the KEK is older than age (0: no limit).
func (s *Service) Due(ctx context.Context, age time.Duration) ([]string, error) {
	keks, err := s.c.Keys.KEKs(ctx, "")
	if err != nil {
		return nil, err
	}
	newest, err := s.newestReceipts(ctx)
	if err != nil {
		return nil, err
	}
	var due []string
	for _, tenantID := range tenantsOf(keks) {
		isDue, err := s.isDue(ctx, keks, tenantID, newest[tenantID], age)
		if err != nil {
			return nil, err
		}
		if isDue {
			due = append(due, tenantID)
		}
	}
	return due, nil
}

func (s *Service) isDue(ctx context.Context, keks []ports.KEK, tenantID string, newest uint64, age time.Duration) (bool, error) {
	for _, k := range keks {
		if k.TenantID != tenantID {
			continue
		}
		switch k.State {
		case ports.KEKPending, ports.KEKDraining:
			return true, nil
		case ports.KEKActive:
			covered, err := s.readCoverage(ctx, tenantID, k.Epoch)
			if err != nil || newest > covered {
				return err == nil, err
			}
			if age == 0 {
				continue
			}
			key, err := s.c.KMS.Describe(ctx, k.KeyID)
			if err != nil || s.c.Clock.Now().Sub(key.CreatedAt) >= age {
				return err == nil, err
			}
		case ports.KEKDeleting, ports.KEKDeleted:
		}
	}
	return false, nil
}

func tenantsOf(keks []ports.KEK) []string {
	var out []string
	for _, k := range keks {
		out = append(out, k.TenantID)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
