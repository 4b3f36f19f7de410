package store

import (
	"context"

	"gorm.io/gorm/clause"

	"github.com/director-kaas/kaas/director"
)

type providerImageRow struct {
	Provider  string `gorm:"primaryKey"`
	Name      string `gorm:"primaryKey"`
	Image     string
	SHA256    string `gorm:"column:sha256"`
	BroughtAt int64
}

func (providerImageRow) TableName() string { return "provider_images" }

// NoteImage records that the image is brought to the provider. It is called before that happens, and again at each
// time.
func (s *machineStore) NoteImage(ctx context.Context, i director.ProviderImage) error {
	row := providerImageRow{
		Provider: i.Provider, Name: i.Name, Image: i.Image, SHA256: i.SHA256, BroughtAt: micros(i.At),
	}
	err := s.write.WithContext(ctx).Clauses(clause.OnConflict{UpdateAll: true}).Create(&row).Error
	return dbError("store.images", "image "+i.Name, err)
}

// ProviderImages lists the images on providers, by provider and name.
func (s *machineStore) ProviderImages(ctx context.Context) ([]director.ProviderImage, error) {
	var rows []providerImageRow
	if err := s.read.WithContext(ctx).Order("provider, name").Find(&rows).Error; err != nil {
		return nil, dbError("store.images", "the images on providers", err)
	}
	out := make([]director.ProviderImage, len(rows))
	for i, r := range rows {
		out[i] = director.ProviderImage{
			Provider: r.Provider, Name: r.Name, Image: r.Image, SHA256: r.SHA256, At: instant(r.BroughtAt),
		}
	}
	return out, nil
}

// ForgetImage removes the record that the image is on the provider. No error if there is none.
func (s *machineStore) ForgetImage(ctx context.Context, provider, name string) error {
	err := s.write.WithContext(ctx).Where("provider = ? AND name = ?", provider, name).Delete(&providerImageRow{}).Error
	return dbError("store.images", "image "+name, err)
}

// NoteImages records that the images may be on their providers, unless there is a record of them.
func (t *machineTx) NoteImages(images []director.ProviderImage) error {
	for _, i := range images {
		row := providerImageRow{
			Provider: i.Provider, Name: i.Name, Image: i.Image, SHA256: i.SHA256, BroughtAt: micros(i.At),
		}
		if err := t.db.Clauses(clause.OnConflict{DoNothing: true}).Create(&row).Error; err != nil {
			return dbError("store.images", "image "+i.Name, err)
		}
	}
	return nil
}
