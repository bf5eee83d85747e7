"""
Values from noisy validation points, corrected
==============================================

Two corrections of the same noisy values: one restores the distribution, the other one restores rows where the noise is
known.
"""

from shapshift import BoundaryCorrector, GaussianNoise, KNNShapley, PosteriorCorrector, evaluate, load_dataset

data = load_dataset("gaussian", n_train=600, n_val=300)
model = KNNShapley(n_neighbors=5).fit(data.X_train, data.y_train)
clean = model.value(data.X_val, data.y_val)
X_noisy, y_noisy = GaussianNoise(0.5, random_state=0)(data.X_val, data.y_val)
noisy = model.value(X_noisy, y_noisy)

corrected = BoundaryCorrector().fit(clean).transform(noisy)
axes = evaluate(corrected, clean, noisy).plot()

# %%
# ``PosteriorCorrector`` needs no clean data. It averages over what the noisy points may have been.

restored = PosteriorCorrector(noise=GaussianNoise(0.5), random_state=0).correct(model, X_noisy, y_noisy)
axes = evaluate(restored, clean, noisy).plot()
