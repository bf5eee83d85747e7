"""
Which validation points to use
==============================

150 points chosen from a pool of 600 so that noise shifts the values least, compared with random choices.
"""

from shapshift import KNNShapley, design_validation, load_dataset

data = load_dataset("gaussian", n_train=600, n_val=600)
model = KNNShapley(n_neighbors=5).fit(data.X_train, data.y_train)
design = design_validation(model, data.X_val, data.y_val, 150, noise=0.2, random_state=0)
ax = design.plot()

# %%
# Is the validation set as near to the class boundary as the training set?

from shapshift import entropy_profile

profile = entropy_profile(data.X_train, data.y_train, data.X_val, data.y_val)
print(profile)
ax = profile.plot()
