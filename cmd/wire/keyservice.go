package wire

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/erpbackbone/backbone/adapters/awskms"
	"github.com/erpbackbone/backbone/adapters/kmsd"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/fault"
)

// keyService holds one client of the key service for each role, so that each role has only the
// permissions that its work needs.
type keyService struct {
	app     *awskms.Client // makes and opens data keys
	rotator *awskms.Client // makes, re-wraps and ends KEKs
	signer  *awskms.Client // signs

	endpoint, credentials string
	close                 func() error // of an embedded server
}

// openKeyService creates the clients, and starts the embedded server if one is configured. It
// does not call the service, so that a node starts while the service is unavailable. Without a
// configured key service it returns nil.
func openKeyService(ctx context.Context, c configs.KMS, observe awskms.Observer, audit *slog.Logger) (_ *keyService, err error) {
	if !c.Configured() {
		return nil, nil
	}
	s := &keyService{endpoint: c.Endpoint, credentials: c.CredentialsFile, close: func() error { return nil }}
	region := c.Region
	if c.LocalDirectory != "" {
		if err := s.serveEmbedded(ctx, c.LocalDirectory, audit); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, s.close())
			}
		}()
	}
	if region == "" {
		region = kmsd.Region
	}
	for _, role := range []struct {
		client         **awskms.Client
		profile, named string
	}{{&s.app, c.AppProfile, kmsd.App}, {&s.rotator, c.RotatorProfile, kmsd.Rotator}, {&s.signer, c.SignerProfile, kmsd.SealSigner}} {
		profile := role.profile
		if profile == "" && s.credentials != "" {
			profile = role.named
		}
		*role.client, err = awskms.New(ctx, awskms.Config{
			Endpoint: s.endpoint, Region: region, CredentialsFile: s.credentials, Profile: profile, Signer: kmsd.Signer{}, Observe: observe,
			Limits: awskms.Limits{Timeout: c.Timeout, Tries: c.Tries, Backoff: c.Backoff},
		})
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// serveEmbedded serves the keys of a folder on a free port of loopback. It makes credentials for
// the server's principals in a folder beside it, at each start new ones, and none for break-glass.
func (s *keyService) serveEmbedded(ctx context.Context, directory string, audit *slog.Logger) error {
	credentials := filepath.Clean(directory) + "-credentials"
	if err := kmsd.IssueTo(directory, credentials); err != nil {
		return err
	}
	server, err := kmsd.Open(kmsd.Config{Directory: directory, Logger: audit})
	if err != nil {
		return err
	}
	listener, err := kmsd.Listen("127.0.0.1:0")
	if err != nil {
		return errors.Join(err, server.Close())
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- server.Serve(serving, listener) }()
	s.endpoint, s.credentials = "http://"+listener.Addr().String(), credentials
	s.close = func() error {
		stop()
		return errors.Join(<-served, server.Close())
	}
	return nil
}

// requireKeys refuses a configuration that lacks what sealing and erasing need. A server that
// started without it would refuse every personal value later.
func requireKeys(c configs.Config) error {
	switch {
	case !c.KMS.Configured():
		return fault.New(fault.Invalid, "config.kms_missing",
			"no key service for personal data; set kms.endpoint and kms.credentials_file to a `backbone kmsd`, or kms.region to use AWS KMS. To try it out on one machine, kms.local_directory with kms.allow_local: true serves keys in this process")
	case c.KMS.LocalDirectory != "" && !c.KMS.AllowLocal:
		return fault.New(fault.Invalid, "config.kms_local",
			"kms.local_directory keeps the keys inside this process; run `backbone kmsd` and set kms.endpoint to it, or accept that with kms.allow_local: true")
	case c.Erasure.ExportDirectory == "":
		return fault.New(fault.Invalid, "config.exports_missing",
			"no folder for receipts of erasures; set erasure.export_directory to one outside the database and its backups, the same for all nodes")
	case keyStoreConfig(c).EraserDSN == "":
		return fault.New(fault.Invalid, "config.eraser_missing",
			"no address for the role that erases; give backbone_eraser a password and set database.eraser_dsn or BACKBONE_DATABASE_ERASER_DSN (keystore.eraser_dsn when the key store has a database of its own)")
	}
	return nil
}

// aliasPrefix returns the prefix of an installation's key names in the key service, so that
// several installations can share a service.
func aliasPrefix(logName string) string {
	sum := sha256.Sum256([]byte(logName))
	readable := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return '-'
	}, logName)
	return "alias/backbone/" + readable[:min(len(readable), 64)] + "-" + hex.EncodeToString(sum[:4])
}

// auditLog returns the logger of an embedded key server's audit, apart from the program's log.
func auditLog(to io.Writer) *slog.Logger {
	if to == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewJSONHandler(to, nil))
}

// stop stops an embedded server. A nil keyService has none.
func (s *keyService) stop() error {
	if s == nil {
		return nil
	}
	return s.close()
}
