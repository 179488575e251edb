package nats

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Verify creates the stream if it does not exist, and checks it otherwise. It never changes
// an existing stream. Faults: publisher.unavailable, publisher.refused with the change that
// the stream needs.
func (p *Publisher) Verify(ctx context.Context) error {
	_, err := p.verify(ctx)
	return err
}

// verify reads the stream once per connection.
func (p *Publisher) verify(ctx context.Context) (streamLimits, error) {
	p.mu.Lock()
	known := p.stream
	p.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	bounded, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	stream, err := p.js.Stream(bounded, p.config.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = p.create(bounded)
	}
	if err != nil {
		return streamLimits{}, p.translate(ctx, err)
	}
	c := stream.CachedInfo().Config
	if problem := p.mismatch(&c); problem != "" {
		return streamLimits{}, fault.New(fault.FailedPrecondition, "publisher.refused", "the stream %s %s; change it, or the settings nats.*", c.Name, problem)
	}
	found := streamLimits{atomic: c.AllowAtomicPublish}
	if c.MaxMsgSize > 0 {
		found.maxBytes = int(c.MaxMsgSize)
	}
	p.mu.Lock()
	p.stream = &found
	p.mu.Unlock()
	return found, nil
}

func (p *Publisher) create(ctx context.Context) (jetstream.Stream, error) {
	c := jetstream.StreamConfig{
		Name: p.config.Stream, Description: "Events of Backbone, in order within each legal entity", Subjects: []string{p.config.SubjectPrefix + ".>"},
		Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage, Discard: jetstream.DiscardOld, Replicas: p.config.Replicas,
		Duplicates: p.config.DuplicateWindow, MaxAge: p.config.MaxAge, MaxBytes: -1, AllowAtomicPublish: true,
	}
	if p.config.MaxAge > 0 {
		c.Duplicates = min(c.Duplicates, p.config.MaxAge)
	}
	return p.js.CreateStream(ctx, c)
}

// mismatch returns why a stream is not usable; "" if it is.
func (p *Publisher) mismatch(c *jetstream.StreamConfig) string {
	all := strings.Split(p.config.SubjectPrefix+".>", ".")
	covered := false
	for _, subject := range c.Subjects {
		covered = covered || covers(strings.Split(subject, "."), all)
	}
	window := p.config.DuplicateWindow
	if c.MaxAge > 0 {
		window = min(window, c.MaxAge)
	}
	switch {
	case !covered:
		return "does not take the subjects " + p.config.SubjectPrefix + ".>"
	case c.Replicas < p.config.Replicas:
		return "has fewer replicas than nats.replicas"
	case c.Duplicates < window:
		return "recognises duplicates for a shorter time than nats.duplicate_window (" + window.Round(time.Second).String() + ")"
	case c.NoAck:
		return "acknowledges nothing, so it is not known what is stored"
	case c.Sealed:
		return "is sealed"
	case c.Mirror != nil:
		return "is a mirror"
	case c.MaxMsgsPerSubject > 0:
		return "keeps only some messages of each subject"
	default:
		return ""
	}
}

// covers reports whether every subject of a pattern is one of the wider pattern's.
func covers(wider, pattern []string) bool {
	for i, w := range wider {
		if w == ">" {
			return len(pattern) > i
		}
		if i >= len(pattern) || pattern[i] == ">" || w != "*" && w != pattern[i] {
			return false
		}
	}
	return len(wider) == len(pattern)
}
