package kmsd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Limits of AWS KMS.
const (
	maximumBody        = 64 << 10 // bytes; the largest request in use stays under 16 KiB
	maximumCiphertext  = 6144
	maximumMessage     = 4096
	maximumContext     = 8192 // bytes of all names and values
	maximumDescription = 8192
	dataKeySize        = 32
)

// decodeStrict reads one JSON document and refuses members it does not know: a call that
// ignores a parameter, such as DryRun, does something else than the client asked for.
func decodeStrict(body []byte, into any) error {
	if !utf8.Valid(body) {
		return errors.New("not UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one document")
	}
	return nil
}

// The requests, with the parameters in use.

type createKeyRequest struct {
	KeySpec     string
	KeyUsage    string
	Description string
}

type createAliasRequest struct {
	AliasName   string
	TargetKeyID string `json:"TargetKeyId"`
}

type keyRequest struct {
	KeyID string `json:"KeyId"`
}

type generateDataKeyRequest struct {
	KeyID             string `json:"KeyId"`
	KeySpec           string
	EncryptionContext map[string]string
}

type decryptRequest struct {
	KeyID               string `json:"KeyId"`
	CiphertextBlob      []byte
	EncryptionContext   map[string]string
	EncryptionAlgorithm string
}

type reEncryptRequest struct {
	CiphertextBlob                 []byte
	SourceKeyID                    string `json:"SourceKeyId"`
	SourceEncryptionContext        map[string]string
	SourceEncryptionAlgorithm      string
	DestinationKeyID               string `json:"DestinationKeyId"`
	DestinationEncryptionContext   map[string]string
	DestinationEncryptionAlgorithm string
}

type scheduleKeyDeletionRequest struct {
	KeyID               string `json:"KeyId"`
	PendingWindowInDays *int
}

type signRequest struct {
	KeyID            string `json:"KeyId"`
	Message          []byte
	MessageType      string
	SigningAlgorithm string
}

// seconds is a time as the protocol writes it: seconds since 1970 with a fraction.
type seconds time.Time

// MarshalJSON writes milliseconds exactly, which a float64 could not.
func (s seconds) MarshalJSON() ([]byte, error) {
	ms := time.Time(s).UnixMilli()
	return fmt.Appendf(nil, "%d.%03d", ms/1000, ms%1000), nil
}

type keyMetadata struct {
	AWSAccountID         string `json:"AWSAccountId"`
	KeyID                string `json:"KeyId"`
	Arn                  string
	CreationDate         seconds
	Enabled              bool
	Description          string
	KeyUsage             string
	KeyState             string
	KeySpec              string
	KeyManager           string
	Origin               string
	MultiRegion          bool
	DeletionDate         *seconds `json:",omitempty"`
	SigningAlgorithms    []string `json:",omitempty"`
	EncryptionAlgorithms []string `json:",omitempty"`
}

func describe(k key) keyMetadata {
	m := keyMetadata{
		AWSAccountID: account, KeyID: k.ID, Arn: k.arn(), CreationDate: seconds(k.CreatedAt),
		Enabled: k.State == stateEnabled, Description: k.Description, KeyUsage: k.usage(), KeyState: k.State, KeySpec: k.Spec,
		KeyManager: "CUSTOMER", Origin: "AWS_KMS",
	}
	if k.State == statePendingDeletion {
		at := seconds(k.DeletionAt)
		m.DeletionDate = &at
	}
	if k.Spec == specEd25519 {
		m.SigningAlgorithms = []string{algorithmEd25519}
	} else {
		m.EncryptionAlgorithms = []string{specSymmetric}
	}
	return m
}

var aliasName = regexp.MustCompile(`^alias/[a-zA-Z0-9/_-]{1,250}$`)

// parseKeyName returns the key id or alias that an id, alias or ARN names.
func parseKeyName(id string) (string, error) {
	name, isOurs := strings.CutPrefix(id, arnPrefix)
	if isOurs {
		name = strings.TrimPrefix(name, "key/")
	} else if strings.HasPrefix(id, "arn:") {
		return "", notFound(id)
	}
	if name == "" || len(name) > 256 {
		return "", validation("A key id has 1 to 256 characters")
	}
	return name, nil
}

// parseKeyID is parseKeyName for the operations that change a key: AWS takes no alias
// there, since an operator may point an alias to another key.
func parseKeyID(id string) (string, error) {
	name, err := parseKeyName(id)
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(name, "alias/") {
		return "", refuse("InvalidArnException", "This operation takes a key id or key ARN, no alias")
	}
	if uuid.Validate(name) != nil {
		return "", notFound(id)
	}
	return name, nil
}

func checkContext(context map[string]string) error {
	size := 0
	for name, value := range context {
		if name == "" || value == "" {
			return validation("Names and values of an encryption context are not empty")
		}
		size += len(name) + len(value)
	}
	if size > maximumContext {
		return validation("An encryption context has at most %d bytes", maximumContext)
	}
	return nil
}

// checkOption refuses a parameter that is set to anything but the one value that the
// server supports.
func checkOption(name, value, served string) error {
	if value != "" && value != served {
		return validation("%s must be %s", name, served)
	}
	return nil
}
