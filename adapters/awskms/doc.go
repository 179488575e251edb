// Package awskms reaches AWS KMS, or a server that speaks its protocol such as kmsd,
// through the AWS SDK. Its [Client] implements the ports of key management and signing for
// keyrotation, the vault and signed notes. It caches nothing and keeps no key.
package awskms
